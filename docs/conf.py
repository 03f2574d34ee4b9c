"""How the documentation is built: `make docs`. Nothing here, nor in the pages, needs a network."""

from __future__ import annotations

import os
import re
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
for library in ("OPENBLAS", "OMP"):  # examples run side by side
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import reference  # noqa: E402
from sphinx.ext.autodoc.mock import mock  # noqa: E402

import divlearn  # noqa: E402

project = "divlearn"
author = "The divlearn developers"
copyright = "the divlearn developers"
version = release = divlearn.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "mathml",  # beside this file
]
exclude_patterns = ["_build", "examples", "tutorial", "**/README.md"]
templates_path = ["_templates"]
default_role = "py:obj"

# --- the reference: pages are written from the packages' __all__, so that none is forgotten -------

# Docstrings of layers can be read without torch, which is larger than all the rest together.
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]
with mock(autodoc_mock_imports):
    reference.write(HERE / "api")
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"  # numpydoc has them in words
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"  # fit(), not IDDLClassifier.fit(): the column is narrow
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# --- the pages ------------------------------------------------------------------------------------

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

# --- the tutorial and the gallery: every example is run -------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": ["tutorial", "examples"],
    "gallery_dirs": ["learn", "gallery"],
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": r"/plot_" if find_spec("torch") else r"/plot_(?!.*torch)",
    "ignore_pattern": r"/_",
    "abort_on_example_error": True,
    "parallel": True,  # as many as `sphinx -j` says
    "backreferences_dir": "api/backreferences",
    "doc_module": ("divlearn",),
    "show_memory": False,
    "write_computation_times": False,  # on pages that ask the network for scripts
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "default_thumb_file": str(HERE / "plane.png"),
    "thumbnail_size": (880, 560),
}
warnings.filterwarnings("ignore", message=".*non-interactive.*")

# --- how it looks ---------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "divlearn"
html_static_path = ["_static"]
html_css_files = ["divlearn.css"]
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}  # light or dark as the system
html_theme_options = {
    "logo": {"text": "divlearn"},
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": []}


def skip_what_is_not_ours(app, kind, name, member, skip, options):
    """Leave out members inherited from scikit-learn and Python, which their own manuals explain."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    module = getattr(function, "__module__", None) or ""
    return True if callable(function) and not module.startswith("divlearn") else skip


def link_pages_of_scripts(app, name, source):
    """Link the page that a script becomes, where pages link the script, as they do for clones."""
    for scripts, pages in (("tutorial", "learn"), ("examples", "gallery")):
        source[0] = source[0].replace(f"]({scripts}/README.rst)", f"]({pages}/index.rst)")
        source[0] = re.sub(rf"\]\({scripts}/(\w+)\.py\)", rf"]({pages}/\1.rst)", source[0])


def setup(app):
    """Connect what is above."""
    app.connect("source-read", link_pages_of_scripts)
    app.connect("autodoc-skip-member", skip_what_is_not_ours)
