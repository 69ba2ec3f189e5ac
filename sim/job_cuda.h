// The CUDA driver for berth-sim-job, loaded by name like in any other program.
#pragma once

#include <string>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "devices/cuda_abi.h"

namespace berth::sim {

struct CudaCalls;  // the driver's functions

// One visible device with a context and one block of memory, whose size can change.
class JobGpu {
 public:
  JobGpu(const CudaCalls& cuda, int device) : cuda_(cuda), device_(device) {}

  Result<void> open();
  Result<void> resize(Bytes memory);
  void set_utilization(unsigned percent) const;
  const std::string& uuid() const { return uuid_; }

  // How often the simulated driver listed the GPU's processes; see docs/simulated-driver.md.
  unsigned long long process_lists() const;

 private:
  const CudaCalls& cuda_;
  int device_;
  std::string uuid_;
  cuda::Context context_ = nullptr;
  cuda::DevicePointer block_ = 0;
};

// Loads libcuda.so.1 and returns the first `most` visible devices (0: all of them).
Result<std::vector<JobGpu>> find_gpus(std::size_t most);

}  // namespace berth::sim
