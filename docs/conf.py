"""How the site is built: `make docs`."""

import sys
import warnings
from pathlib import Path

import polyhedge

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Polyhedge"
author = "Polyhedge developers"
copyright = "Polyhedge developers"
version = release = polyhedge.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "mathml",  # formulas as MathML: no script from elsewhere, so that the site reads offline
    "dollar_math",  # docstrings write $...$
    "entries",  # and `name : what it is`
    "without_data",  # examples on real data, where there is no registry
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "sg_execution_times.rst", "gallery/sg_execution_times.rst"]
nitpicky = False
default_role = "literal"  # `name` in the gallery, as in docstrings and pages

source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_class_members_toctree = False


def warned(message, category, filename, lineno, line=None):
    """A warning in the gallery without the place where the site was built."""
    return f"{category.__name__}: {message}\n"


warnings.formatwarning = warned

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "capture_repr": ("_repr_html_", "__repr__"),
}

html_theme = "pydata_sphinx_theme"
html_title = "Polyhedge"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"index": []}  # every other page has the pages of its section at its left
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 5,
    "navbar_align": "left",
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
}
html_context = {"default_mode": "auto"}
