"""All pages. A new page is a new file with PATH, NAME, OF_A_RUN, `layout` and `register`, and a line here.

PATH        its address
NAME        what the way to it is called in the bar; empty when only other pages lead there
OF_A_RUN    whether it is about one run, named by `?run=`
layout(runs, query, theme)  what is there when it opens
register(app, runs)         its callbacks

A page is built anew when its path, its query or the theme changes. Its callbacks take only parts of its own as Inputs
(the frame's `url` and `scheme` as State), for a callback with an Input that is not on the page is an error in the
browser. Ids begin with the page's name, so that pages don't meet. What a page wants its address to remember it writes
with `history.replaceState`, which builds nothing anew.
"""

from dashboards.pages import compare, completions, detector, detectors, incident, journal, preflight, run, runs

PAGES = (runs, run, incident, completions, journal, compare, preflight, detectors, detector)
