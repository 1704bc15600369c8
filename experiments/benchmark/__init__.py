"""How fast a round is, beside rivals, whose processes import this as well: nothing but what is needed is loaded."""
