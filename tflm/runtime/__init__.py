"""The runtime: allocator, context, graph, interpreter, resolver, profiler. May import kernels, memory and schema."""
