// Endings that a signal's handler cannot keep from happening.
#pragma once

#include <nanobind/nanobind.h>

namespace berth::python {

// Defines InterruptSafeContext and Releasable, bases for classes of the package: __exit__() asks
// _current_entry() of the class what is to be left, and gives it to _exit_entry(); release() calls
// _release(). Each of these can be called again after it was left half-way.
//
// In Python a handler may raise (Ctrl-C) between any two steps, also at the first one of
// __exit__(). Here it cannot: what was interrupted is called once more, and only then the exception
// goes on.
void define_interrupt_safe_context(nanobind::module_& module);

}  // namespace berth::python
