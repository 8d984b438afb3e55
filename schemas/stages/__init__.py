"""The stages of a task in its report: typed values for ``millrace status``, metrics and dashboards.

    captured    the member that a capture task reads, its lag, the last switches, all members of the set
    relayed     the set's relay log: what is stored, who needs it, what might be lost
    published   what a capture task has published: rows, pace, and the lag until a reader of the topic sees a row
    loaded      what an apply task that starts with a load has copied: rows, pace, ETA
    applied     what an apply task has applied: rows, pace, backlog, and the lag until the target has a row
    compared    the last comparison of source and target beside an apply task, and the one under way

One module a stage. Keys of their JSON objects are stable; new ones may be added. A value is null while it is unknown.
Pure values; nothing here measures.
"""
