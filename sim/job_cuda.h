// The CUDA driver as a program sees it: found by name, called through pointers.
#pragma once

#include <string>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "devices/cuda_abi.h"

namespace berth::sim {

struct CudaCalls;  // the driver's functions

// One visible device, with a context, and one block of memory that changes its size.
class JobGpu {
 public:
  JobGpu(const CudaCalls& cuda, int device) : cuda_(cuda), device_(device) {}

  Result<void> open();
  Result<void> resize(Bytes memory);
  void set_utilization(unsigned percent) const;
  const std::string& uuid() const { return uuid_; }

 private:
  const CudaCalls& cuda_;
  int device_;
  std::string uuid_;
  cuda::Context context_ = nullptr;
  cuda::DevicePointer block_ = 0;
};

// Loads libcuda.so.1 and finds the first `most` visible devices (0: all of them).
Result<std::vector<JobGpu>> find_gpus(std::size_t most);

}  // namespace berth::sim
