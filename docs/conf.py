"""The site, made of the repository's own Markdown: `python -m sphinx -W --keep-going -b html -c docs . docs/_build`.

Sphinx with MyST, because the pages are Markdown that a code host shows as well. Furo, because it loads nothing from
elsewhere and is made for light and dark, phone and desktop. Notebooks are linked, not rendered: they are kept without
outputs, and running five of them takes minutes.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing is computed

import fedpriv  # noqa: E402

project = "fedpriv"
author = copyright = "the fedpriv authors"
version = release = fedpriv.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "command_help",
    "mathml",
    "public_names",
    "readable",
    "type_names",
]

# The source folder is the repository: its pages are the site's, wherever they lie, and nothing stands twice.
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "ARTIFACT.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "experiments/results/**.md",
]
exclude_patterns = [".*", "**/.*", "build", "dist", "runs", "venv", "docs/_build"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_typehints = "none"  # they stand in the signatures, see `readable`
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_use_rtype = False
default_role = "py:obj"
maximum_signature_line_length = 72
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
add_module_names = False

html_theme = "furo"
html_title = f"fedpriv {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(HERE / "_static" / "scorer.js")
templates_path = ["_templates"]
html_additional_pages = {"index": "to_front_page.html"}
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_exclude = ".linenos, .gp"
