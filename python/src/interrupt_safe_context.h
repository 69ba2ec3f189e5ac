// Base classes whose __exit__() and release() finish even if a signal handler raises.
#pragma once

#include <nanobind/nanobind.h>

namespace berth::python {

// Defines InterruptSafeContext and Releasable, base classes for the Python package. __exit__()
// calls _current_entry() of the derived class, and passes the result to _exit_entry(); release()
// calls _release(). The derived class must allow each of these to be called again after an
// interruption.
//
// In Python code, a signal handler can raise (Ctrl-C) between any two steps, even before the first
// step of __exit__(). This C++ code cannot be interrupted so: it calls an interrupted method again,
// and raises the exception only when all is done.
void define_interrupt_safe_context(nanobind::module_& module);

}  // namespace berth::python
