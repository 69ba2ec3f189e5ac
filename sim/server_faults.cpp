// Reads the description of faults; see server_faults.h.
#include "sim/server_faults.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.h"
#include "devices/cuda_abi.h"
#include "devices/nvml_abi.h"
#include "sim/calls.h"

namespace berth::sim {
namespace {

std::optional<int> find_code(std::string_view name, bool cuda) {
  using Code = std::pair<std::string_view, int>;
  constexpr std::array nvml_codes = std::to_array<Code>({
      {"uninitialized", nvml::uninitialized},
      {"invalid_argument", nvml::invalid_argument},
      {"not_supported", nvml::not_supported},
      {"no_permission", nvml::no_permission},
      {"not_found", nvml::not_found},
      {"insufficient_size", nvml::insufficient_size},
      {"driver_not_loaded", nvml::driver_not_loaded},
      {"timeout", nvml::timeout},
      {"library_not_found", nvml::library_not_found},
      {"function_not_found", nvml::function_not_found},
      {"gpu_is_lost", nvml::gpu_is_lost},
      {"reset_required", nvml::reset_required},
      {"operating_system", nvml::operating_system},
      {"lib_rm_version_mismatch", nvml::lib_rm_version_mismatch},
      {"in_use", nvml::in_use},
      {"memory", nvml::memory},
      {"no_data", nvml::no_data},
      {"argument_version_mismatch", nvml::argument_version_mismatch},
      {"gpu_not_found", nvml::gpu_not_found},
      {"invalid_state", nvml::invalid_state},
      {"unknown", nvml::unknown},
  });
  constexpr std::array cuda_codes = std::to_array<Code>({
      {"invalid_value", cuda::invalid_value},
      {"out_of_memory", cuda::out_of_memory},
      {"not_initialized", cuda::not_initialized},
      {"deinitialized", cuda::deinitialized},
      {"stub_library", cuda::stub_library},
      {"device_unavailable", cuda::device_unavailable},
      {"no_device", cuda::no_device},
      {"invalid_device", cuda::invalid_device},
      {"invalid_context", cuda::invalid_context},
      {"system_driver_mismatch", cuda::system_driver_mismatch},
      {"unknown", cuda::unknown},
  });
  const auto find = [&](const auto& codes) -> std::optional<int> {
    for (const auto& [known, code] : codes) {
      if (known == name) return code;
    }
    return {};
  };
  return cuda ? find(cuda_codes) : find(nvml_codes);
}

void read_answer(Fields& fields, Fault& fault) {
  const Json* value = fields.any("answer");
  if (value->as_string() != nullptr) {
    const std::string& name = *value->as_string();
    const auto code = find_code(name, fault.call.starts_with("cu"));
    if (!code)
      fields.report("answer", fmt::format("{} is not the name of an error code", in_quotes(name)));
    fault.answer = code.value_or(1);
  } else {
    // 0 is not allowed: after a success without a result, the caller would use uninitialised
    // memory.
    fault.answer = static_cast<int>(fields.integer("answer", 1, 999).value_or(1));
  }
}

}  // namespace

Window read_window(Fields& fields) {
  Window window;
  window.after = fields.duration("after").value_or(std::chrono::nanoseconds{0});
  window.until = fields.duration("until");
  if (window.until && *window.until <= window.after)
    fields.report("until", "must be later than \"after\"");
  return window;
}

std::optional<std::size_t> read_card_index(Fields& fields, const Server& server) {
  const auto index = fields.integer("gpu", 0, static_cast<long long>(server.cards.size()) - 1);
  if (!index) return {};
  return static_cast<std::size_t>(*index);
}

Fault read_fault(const Json& json, const std::string& where, FirstProblem& problem,
                 const Server& server) {
  Fields fields(json, where, problem);
  Fault fault;
  fault.card = read_card_index(fields, server);
  fault.window = read_window(fields);
  fault.call = fields.text("call").value_or("");
  int effects = 0;
  for (const char* effect : {"answer", "delay", "hang", "lost"})
    effects += fields.has(effect) ? 1 : 0;
  if (effects != 1) {
    fields.problem().report(
        fmt::format("{} must have exactly one of \"answer\", \"delay\", \"hang\" and \"lost\"",
                    fields.where()));
  }
  if (fields.has("answer")) {
    read_answer(fields, fault);
  } else if (fields.has("delay")) {
    fault.effect = Fault::Effect::delay;
    fault.delay = fields.duration("delay").value_or(std::chrono::nanoseconds{0});
  } else if (fields.has("hang")) {
    fault.effect = Fault::Effect::hang;
    if (!fields.flag("hang", true)) fields.report("hang", "can only be true");
  } else if (fields.has("lost")) {
    fault.effect = Fault::Effect::lost;
    if (!fields.flag("lost", true)) fields.report("lost", "can only be true");
    if (!fault.card) fields.report("lost", "needs \"gpu\"");
    if (!fault.call.empty())
      fields.report("lost", "cannot be used with \"call\": a lost card fails all calls");
  }
  if (fault.effect != Fault::Effect::lost) {
    const bool known = std::any_of(kCalls.begin(), kCalls.end(), [&](const Call& call) {
      return names_call(fault.call, call.name);
    });
    if (!known) {
      fields.report("call",
                    "must be a call of the simulated driver, such as \"nvmlDeviceGetTemperature\"");
    }
  }
  return fault;
}

}  // namespace berth::sim
