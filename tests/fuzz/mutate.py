"""What becomes of a good message on a bad way: bytes flipped, cut out, put in, said twice.

In: a message's bytes and a random generator. Out: other bytes, the same for the same seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

MOST_MUTATIONS = 3
LONG = (1_000, 200_000)  # bytes that one part of a message may be blown up to, by tenfolds
DEEP = (10, 100, 1_000, 30_000)  # levels

# What somebody's parser stumbles over, or takes for the end of something.
TOKENS = [
    *(
        b"\\",
        b"\\.",
        b"\n\\.\n",
        b"\\.\n",
        b"\\N",
        b"\\n",
        b"\\\n",
        b"\\x",
        b"\\x41",
        b"\\101",
        b"\\r",
        b"\\\r",
        b"\\\\.",
    ),
    *(b'"', b'""', b'\\"', b"'", b"''", b'","', b'"\n', b'\n"', b",", b"\t", b"|", b";"),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\n\r", b"\0", b"\x00\x00", b"\x01", b"\x08", b"\x1a", b"\x7f"),
    *(
        b"\xff",
        b"\xc3",
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\x80",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
    ),
    *(b"{", b"}", b"[", b"]", b"}{", b"},{", b"][", b"[]", b"{}", b"[{}]", b"[[]]", b":", b": ", b"{}\n{}"),
    *(b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"nan", b"undefined", b"None", b"//", b"/* */", b"--"),
    *(b"\\u0000", b"\\ud800", b"\\udc00", b"\\ud83d\\ude00", b"\\u00", b"\\uD800\\u0041", b"\\/", b"\\a"),
    *(b"-", b"+", b"-0", b"00", b"0x10", b"1.", b".5", b"1e5", b"1E400", b"-1e-400", b"1e999999999", b"1_000"),
    *(b"9223372036854775808", b"-9223372036854775809", b"32768", b"4294967296", b"infinity", b"epoch", b"now"),
    *(b"%s", b"%", b"%%", b"$1", b"$$", b"{0}", b"${x}", b"');DROP TABLE x;--", b"COPY t, line 1, column n"),
]

Mutation = Callable[[bytes, bytes, random.Random], bytes]


def mutate(value: bytes, other: bytes, rng: random.Random) -> bytes:
    """Return ``value`` after one to MOST_MUTATIONS mutations; ``other`` is a message that parts may come from."""
    for _ in range(rng.randint(1, MOST_MUTATIONS)):
        (mutation,) = rng.choices(_MUTATIONS, weights=_WEIGHTS)
        value = mutation(value, other, rng)
    return value


def _place(value: bytes, rng: random.Random) -> int:
    return rng.randint(0, len(value))


def _range(value: bytes, rng: random.Random) -> tuple[int, int]:
    first, last = sorted((_place(value, rng), _place(value, rng)))
    return first, last


def _put(value: bytes, what: bytes, rng: random.Random) -> bytes:
    place = _place(value, rng)
    return value[:place] + what + value[place:]


def _flip(value: bytes, _: bytes, rng: random.Random) -> bytes:
    """Another byte in place of one, or a bit of it."""
    if not value:
        return value
    place = rng.randrange(len(value))
    byte = value[place] ^ (1 << rng.randrange(8)) if rng.random() < 0.5 else rng.randrange(256)
    return value[:place] + bytes([byte]) + value[place + 1 :]


def _cut(value: bytes, _: bytes, rng: random.Random) -> bytes:
    """Without its end, its beginning, or a part between."""
    first, last = _range(value, rng)
    return rng.choice([value[:first], value[last:], value[:first] + value[last:]])


def _splice(value: bytes, other: bytes, rng: random.Random) -> bytes:
    """Its beginning, and another's end."""
    return value[: _place(value, rng)] + other[_place(other, rng) :]


def _join(value: bytes, other: bytes, rng: random.Random) -> bytes:
    """Both, one after the other."""
    return value + rng.choice([b"", b"\n", b"\r\n", b",", b" "]) + other


def _repeat(value: bytes, _: bytes, rng: random.Random) -> bytes:
    """A part of it twice: a key, a field, a line."""
    first, last = _range(value, rng)
    return value[:last] + value[first:last] + value[last:]


def _token(value: bytes, _: bytes, rng: random.Random) -> bytes:
    """A token put in."""
    return _put(value, rng.choice(TOKENS), rng)


def _swap(value: bytes, _: bytes, rng: random.Random) -> bytes:
    """A token in place of a part."""
    first, last = _range(value, rng)
    return value[:first] + rng.choice(TOKENS) + value[min(last, first + 20) :]


def _long(value: bytes, _: bytes, rng: random.Random) -> bytes:
    """A part that goes on and on; few of the very long."""
    length = min(LONG[1], int(LONG[0] * 10 ** rng.expovariate(1.5)))
    return _put(value, rng.choice([b"9", b"a", b" ", b"\n", b"\\", b'"', b"\t", b"\xc3\xa4", *TOKENS]) * length, rng)[
        : 2 * LONG[1]
    ]


def _deep(value: bytes, _: bytes, rng: random.Random) -> bytes:
    """Within many arrays or objects."""
    depth = rng.choice(DEEP)
    opening, closing = rng.choice(
        [(b"[", b"]"), (b'{"id":', b"}"), (b'{"nested":[', b"]}"), (b"{", b"}"), (b"(", b")")]
    )
    return opening * depth + value + closing * rng.choice([depth, depth, depth - 1])


def _recode(value: bytes, _: bytes, rng: random.Random) -> bytes:
    """In another encoding than said."""
    text = value.decode("utf-8", "replace")
    return text.encode(rng.choice(["utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "cp037"]), "replace")


def _noise(_: bytes, __: bytes, rng: random.Random) -> bytes:
    """Anything."""
    return rng.randbytes(rng.randint(0, 60))


def _empty(_: bytes, __: bytes, rng: random.Random) -> bytes:
    """Nothing, or as good as nothing."""
    return rng.choice([b"", b" ", b"\n", b"\r\n", b"\t", b'""', b"\0"])


_SHARES: dict[Mutation, int] = {
    _flip: 20,
    _cut: 15,
    _token: 25,
    _swap: 15,
    _repeat: 10,
    _splice: 6,
    _join: 5,
    _empty: 2,
    _noise: 2,
    _recode: 2,
    _deep: 2,
    _long: 1,
}
_MUTATIONS, _WEIGHTS = list(_SHARES), list(_SHARES.values())
