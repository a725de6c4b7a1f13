"""`make demo`: a topic flows into a table of a throwaway server, and the screen says what happens.

stage has the servers, orders the events, psql the statements, watch the counting; __main__ is the play.
"""
