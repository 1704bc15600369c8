"""From a traced round to a certificate, and the checks of an algorithm."""
