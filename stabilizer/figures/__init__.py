"""Run view -> plotly figure: pure, shared by the dashboard, the report and notebooks.

`charts(view)` says which charts a run gets, `metric_figure` draws one, `CONFIG` is every graph's configuration.
"""

from stabilizer.core.severity import ICONS, WORDS
from stabilizer.figures.default_charts import CORE, Chart, charts
from stabilizer.figures.families import FAMILIES, every_chart, others, searched
from stabilizer.figures.metric import metric_figure
from stabilizer.figures.plan import Branch, abandoned
from stabilizer.figures.theme import CONFIG, PALETTES, TEMPLATES, Theme
from stabilizer.runs.story import Incident, incidents, newest_findings

__all__ = [
    "CONFIG",
    "CORE",
    "FAMILIES",
    "ICONS",
    "PALETTES",
    "TEMPLATES",
    "WORDS",
    "Branch",
    "Chart",
    "Incident",
    "Theme",
    "abandoned",
    "charts",
    "every_chart",
    "incidents",
    "metric_figure",
    "newest_findings",
    "others",
    "searched",
]
