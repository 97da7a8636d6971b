"""All pages. A new page is a new file with PATH, NAME, OF_A_RUN, `layout` and `register`, and a line here.

PATH        its address
NAME        what the way to it is called in the bar; empty when only other pages lead there
OF_A_RUN    whether it is about one run, named by `?run=`
layout(runs, query)     what is there when it opens; pure of the browser, quick, raises nothing
register(app, runs)     its callbacks; ids of its parts begin with its name, so that pages don't meet
"""

from dashboards.pages import compare, completions, detector, detectors, incident, journal, preflight, run, runs

PAGES = (runs, run, incident, completions, journal, compare, preflight, detectors, detector)
