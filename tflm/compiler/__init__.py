"""The compiler of kernels: functions written in Python, made machine code through LLVM. Needs the extra `fast`.

- `language` says how a kernel is written, `intrinsics` what it can call (`llvm_ir` has the LLVM IR of that, and of the
  entry of each kernel).
- `compiler` makes object files of kernels (`numba_compiler` through numba). It runs in a process whose main program is
  `compiler_main`, started by `compiler_process`.
- `machine_code` finds the machine code of kernels. `object_loader` loads object files without LLVM where it can,
  otherwise `llvm_linker` does. `cache` keeps them in `cached_files`, for the `processor` of this machine: `host` has
  what LLVM says about it.
- Differences between systems are in separate modules: `posix_files` and `windows_files`.
- `calls` makes a function of a kernel; without the extra, its definition in Python.
"""
