"""Formulas as MathML, by docutils' own converter: pages show them without scripts or a network."""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging
from sphinx.util.math import wrap_displaymath

_LOGGER = logging.getLogger(__name__)
# What LaTeX knows and the converter calls otherwise.
_SYNONYMS = {
    r"\\dots": r"\\ldots",
    r"\\Big\(": r"\\Bigl(",
    r"\\Big\)": r"\\Bigr)",
    r"\\(t?frac)(\d)(\d)": r"\\\1{\2}{\3}",
}
# Browsers put no space after the name of a function, as in log x, where no parenthesis follows.
_APPLIED = re.compile(r"<mo>&ApplyFunction;</mo>(?!\s*<mo[^>]*>[(\[])")


def _convert(tex: str, node: nodes.Element, *, as_block: bool) -> str:
    for ours, theirs in _SYNONYMS.items():
        tex = re.sub(ours, theirs, tex)
    try:
        return _APPLIED.sub('<mspace width="0.17em"></mspace>', tex2mathml(tex, as_block=as_block))
    except Exception as error:  # the converter has errors of many kinds
        _LOGGER.warning("cannot show the formula %s: %s", tex, error, location=node)
        raise nodes.SkipNode from error


def visit_inline(self, node):
    self.body.append(_convert(node.astext(), node, as_block=False))
    raise nodes.SkipNode


def visit_block(self, node):
    tex = node.astext()
    if r"\\" in tex and r"\begin" not in tex:
        tex = wrap_displaymath(tex, None, numbering=False)
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(_convert(tex, node, as_block=True))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect(
        "config-inited", lambda app, config: setattr(config, "html_math_renderer", "mathml")
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
