"""An extension of Griffe: our docstrings say "Example", which it knows as "Examples"."""

import re

import griffe


class Examples(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = re.sub(
                r"^([ ]*)Example:$", r"\1Examples:", text, flags=re.MULTILINE
            )
