"""longspan in the places where models of other packages call attention."""
