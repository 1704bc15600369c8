"""Formulas as MathML, which browsers draw by themselves: no script, no font, no request."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True}


def inline(self, node: nodes.math) -> None:
    self.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def block(self, node: nodes.math_block) -> None:
    self.body.append(convert(node.astext(), display="block"))
    raise nodes.SkipNode
