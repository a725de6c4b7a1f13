"""A streaming standby takes over."""

from __future__ import annotations

from pathlib import Path

from tests.crash.site import Site
from tests.fix_kafka import MakeTopic
from tests.fix_report import Watch
from tests.testbed.database import Database

OURS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pipeline_kafka %'"


def test_a_promoted_standby_goes_on_where_its_rows_end(
    own_site: Site, topic: MakeTopic, folder: Path, watch_log: Watch
) -> None:
    name = topic(4)
    own_site.consume(name, "t")
    with own_site.cluster.standby(folder / "standby") as standby, own_site.load(name) as load:
        watch_log("standby log", standby.log_file)
        own_site.progress("t")
        database = Database(standby, own_site.database.name)
        with database.connect() as reader:
            assert reader.execute(OURS).fetchone() == (0,)
        own_site.cluster.kill9()
        standby.promote()
        own_site.reconnect(database)
        own_site.progress("t")
        load.stop()
        own_site.exact(load, "t")
        assert standby.resets() == 0
