// Whether CUDA has been started in this process.
#pragma once

namespace berth::python {

// CUDA reads CUDA_VISIBLE_DEVICES once, when cuInit() is called: after that a choice of GPUs has no
// effect. Loads nothing.
bool cuda_is_started();

}  // namespace berth::python
