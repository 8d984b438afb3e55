"""5110 to 5119, 4235 to 4239: streams of a task, while it loads tables, and the request to load them."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-5110",
        "a load began before the progress of its task",
        "The replica that the load reads did not have all the changes that the task had applied when the load took over the"
        " tables. Changes in between would be missing.",
        "Nothing to do: the tables are loaded again. If the error persists, check the lag of the source's replicas.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5111",
        "a load of tables can't continue",
        "The message has the code and the reason of the error. The tables stay as they are. The task applies its other tables"
        " meanwhile.",
        "The message has the code of the load's error: do what its entry says. The load is repeated by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4209",
        "a table to load does not exist",
        "Neither the source nor the target has a table of this name, and nothing was changed. Names are compared with their"
        " case, unless a server stores them in lower case.",
        "Correct --tables; the message has names that are near.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4210",
        "a view can't be loaded",
        "A view shows rows of other tables, and no statement about views is applied.",
        "Name the tables that it reads. Create the view on the target yourself.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4211",
        "the topic does not have the table to load",
        "`include` and `exclude` of the capture task leave the table out, so its later changes would be missing.",
        "Let the capture task admit the table (`millrace task create -f FILE --replace`), then repeat the command.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4235",
        "the load was not confirmed",
        "The answer was not yes. Nothing has changed.",
        "Read with --dry-run which tables are emptied and copied again. Then repeat the command and answer yes, or give"
        " --yes.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4236",
        "a table to load is not one of the task",
        "The name is not DATABASE.TABLE, or `include` and `exclude` of the task leave the table out.",
        "Correct --tables, or change `include` and `exclude` (`millrace task create -f FILE --replace`).",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4237",
        "the task can't load tables now",
        "It is no apply task, or it has no progress on the target: it has not run yet, or its first load still copies.",
        "Name an apply task, and wait until it applies changes (`millrace status`). With `start: load` it copies all of its"
        " tables first.",
        Branch.OPERATOR,
    ),
)
