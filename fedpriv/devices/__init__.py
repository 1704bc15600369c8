"""Where it is computed: layout, memory, processes, compilation."""
