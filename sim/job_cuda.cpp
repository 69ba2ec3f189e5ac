// Loads and calls the CUDA driver for berth-sim-job; see job_cuda.h.
#include "sim/job_cuda.h"

#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>

#include "base/environment.h"
#include "base/text.h"

namespace berth::sim {

struct CudaCalls {
  cuda::Result (*init)(unsigned) = nullptr;
  cuda::Result (*count)(int*) = nullptr;
  cuda::Result (*name)(char*, int, cuda::Device) = nullptr;
  cuda::Result (*uuid)(cuda::Uuid*, cuda::Device) = nullptr;
  cuda::Result (*retain)(cuda::Context*, cuda::Device) = nullptr;
  cuda::Result (*push)(cuda::Context) = nullptr;
  cuda::Result (*pop)(cuda::Context*) = nullptr;
  cuda::Result (*allocate)(cuda::DevicePointer*, std::size_t) = nullptr;
  cuda::Result (*free)(cuda::DevicePointer) = nullptr;
  cuda::Result (*memory)(std::size_t*, std::size_t*) = nullptr;
  cuda::Result (*error_text)(cuda::Result, const char**) = nullptr;
  // Extensions of the simulated driver; null for a real one.
  const char* (*problem)() = nullptr;
  int (*problem_is_usage)() = nullptr;
  int (*set_utilization)(int, unsigned) = nullptr;
  unsigned long long (*process_lists)(int) = nullptr;
};

namespace {

template <class F>
bool bind(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(::dlsym(library, name));
  return function != nullptr;
}

Result<void> bind_all(void* library, CudaCalls& cuda) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& function) {
    if (!bind(library, name, function) && missing == nullptr) missing = name;
  };
  need("cuInit", cuda.init);
  need("cuDeviceGetCount", cuda.count);
  need("cuDeviceGetName", cuda.name);
  need("cuDeviceGetUuid_v2", cuda.uuid);
  need("cuDevicePrimaryCtxRetain", cuda.retain);
  need("cuCtxPushCurrent_v2", cuda.push);
  need("cuCtxPopCurrent_v2", cuda.pop);
  need("cuMemAlloc_v2", cuda.allocate);
  need("cuMemFree_v2", cuda.free);
  need("cuMemGetInfo_v2", cuda.memory);
  need("cuGetErrorString", cuda.error_text);
  bind(library, "berth_sim_problem", cuda.problem);
  bind(library, "berth_sim_problem_is_usage", cuda.problem_is_usage);
  bind(library, "berth_sim_set_utilization", cuda.set_utilization);
  bind(library, "berth_sim_process_lists", cuda.process_lists);
  if (missing == nullptr) return {};
  return fail(ErrorKind::no_driver, fmt::format("libcuda.so.1 is too old: {} is missing", missing));
}

// A failure of the job itself, not of its usage or the driver; its exit code is kExitFailed.
tl::unexpected<Error> job_failure(std::string message) {
  return fail(ErrorKind::not_granted, std::move(message));
}

std::string text_of(const CudaCalls& cuda, cuda::Result code) {
  const char* text = nullptr;
  if (cuda.error_text(code, &text) != cuda::success || text == nullptr) text = "unknown error";
  return fmt::format("{} (CUDA error {})", printable(text), static_cast<int>(code));
}

tl::unexpected<Error> init_failure(const CudaCalls& cuda, cuda::Result code) {
  const char* problem = cuda.problem == nullptr ? nullptr : cuda.problem();
  if (problem != nullptr) {
    const bool usage = cuda.problem_is_usage != nullptr && cuda.problem_is_usage() != 0;
    return fail(usage ? ErrorKind::usage : ErrorKind::no_driver, problem);
  }
  if (code == cuda::no_device) {
    const auto visible = get_env("CUDA_VISIBLE_DEVICES");
    return job_failure(
        fmt::format("no CUDA device is visible (CUDA_VISIBLE_DEVICES{})",
                    visible ? fmt::format("={}", in_quotes(*visible)) : " is not set"));
  }
  return job_failure(fmt::format("cannot initialize CUDA: {}", text_of(cuda, code)));
}

}  // namespace

Result<std::vector<JobGpu>> find_gpus(std::size_t most) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorKind::no_driver,
                fmt::format("cannot load libcuda.so.1 ({}); the simulated driver is in lib/sim",
                            printable(::dlerror())));
  }
  static CudaCalls cuda;
  TRY(bind_all(library, cuda));
  if (const auto code = cuda.init(0); code != cuda::success) return init_failure(cuda, code);
  int count = 0;
  if (const auto code = cuda.count(&count); code != cuda::success) return init_failure(cuda, code);
  if (most > static_cast<std::size_t>(count)) {
    return job_failure(fmt::format("{} GPUs requested, but only {} visible", most, count));
  }
  const int gpu_count = most == 0 ? count : static_cast<int>(most);
  std::vector<JobGpu> gpus;
  gpus.reserve(static_cast<std::size_t>(gpu_count));
  for (int i = 0; i < gpu_count; ++i) gpus.emplace_back(cuda, i);
  return gpus;
}

Result<void> JobGpu::open() {
  std::array<char, 128> name{};
  cuda::Uuid bytes{};
  auto code = cuda_.name(name.data(), static_cast<int>(name.size()), device_);
  if (code == cuda::success) code = cuda_.uuid(&bytes, device_);
  if (code == cuda::success) code = cuda_.retain(&context_, device_);
  if (code != cuda::success) {
    return job_failure(fmt::format("device {} cannot be used: {}", device_, text_of(cuda_, code)));
  }
  // CUDA returns only the bytes of a UUID. The name says whether the device is a MIG instance.
  uuid_ = std::string_view(name.data()).find(" MIG ") == std::string_view::npos ? "GPU" : "MIG";
  for (std::size_t i = 0; i < sizeof(bytes.bytes); ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    uuid_ += fmt::format("{}{:02x}", dash ? "-" : "", static_cast<unsigned char>(bytes.bytes[i]));
  }
  return {};
}

Result<void> JobGpu::resize(Bytes memory) {
  cuda_.push(context_);
  // The old block is freed first, so that a step never needs memory for both blocks.
  if (block_ != 0) cuda_.free(block_);
  block_ = 0;
  const auto code = memory.count == 0 ? cuda::success : cuda_.allocate(&block_, memory.count);
  std::size_t free = 0;
  std::size_t total = 0;
  cuda_.memory(&free, &total);
  cuda_.pop(nullptr);
  if (code == cuda::success) return {};
  if (code != cuda::out_of_memory) {
    return job_failure(
        fmt::format("cannot allocate memory on device {}: {}", device_, text_of(cuda_, code)));
  }
  return job_failure(fmt::format(
      "CUDA out of memory. Tried to allocate {} on device {} ({}), which has {} free of {}",
      format_size(memory), device_, uuid_, format_size({free}), format_size({total})));
}

void JobGpu::set_utilization(unsigned percent) const {
  if (cuda_.set_utilization != nullptr) cuda_.set_utilization(device_, percent);
}

unsigned long long JobGpu::process_lists() const {
  return cuda_.process_lists == nullptr ? 0 : cuda_.process_lists(device_);
}

}  // namespace berth::sim
