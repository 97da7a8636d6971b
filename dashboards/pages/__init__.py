"""All pages. A new page is a new file with PATH, NAME, OF_A_RUN, `layout` and `register`, and a line here.

PATH        its address
NAME        its name in the bar; empty when only other pages link to it
OF_A_RUN    whether it is about one run, named by `?run=`
layout(runs, query, theme)  its content when it opens
register(app, runs)         its callbacks, which take and return values by name

A page is rebuilt when its path, its query or the theme changes. Its callbacks take only parts of its own as inputs (the
frame's `url` and `scheme` as states), because a callback with an input that is not on the page is an error in the
browser. Ids begin with the page's name, so that pages don't collide. A page keeps its settings in the address with
`history.replaceState`, which rebuilds nothing.
"""

from dashboards.pages import (
    alerts,
    compare,
    completions,
    detector,
    detectors,
    incident,
    journal,
    preflight,
    run,
    runs,
    setup,
    workspace,
)

PAGES = (runs, workspace, run, incident, completions, journal, setup, compare, preflight, detectors, detector, alerts)
