"""Who may do what. Pure decisions over values; the surfaces ask the questions."""
