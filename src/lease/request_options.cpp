// Parses and checks the values of a request; see request_options.h.
#include "lease/request_options.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "base/environment.h"
#include "base/text.h"
#include "lease/gpu_list.h"

namespace berth {
namespace {

constexpr unsigned kMaxCount = 4096;  // of GPUs and of processes
constexpr std::chrono::hours kMaxRunTime(24 * 3650);
constexpr std::size_t kMaxTextBytes = 256;  // all viewers of the queue read these texts

constexpr std::string_view kWholeGpus = "all";
constexpr std::array<std::string_view, 3> kPolicies{"spread", "pack", "random"};  // by Policy

template <unsigned low, unsigned high>
Result<unsigned> parse_number(std::string_view text) {
  unsigned number = 0;
  TRY(parse_bounded_number(text, low, high, number));
  return number;
}

// "8B", as Python writes the number 8, was meant as 8GiB. Nothing if the size is large enough, or
// has another unit.
Result<void> refuse_few_bytes(std::string_view text, Bytes size) {
  constexpr std::size_t kMaxGib = 1024;
  const bool is_number = text.find_first_not_of("0123456789") + 1 == text.size();
  if (!is_number || size >= kMinReservation) return {};
  const bool may_be_gib = size.count > 0 && size.count < kMaxGib;
  return fail(ErrorKind::usage,
              fmt::format("{} is a number of bytes, and less than any job needs; write {}GiB",
                          size.count, may_be_gib ? size.count : 8));
}

// Nothing for "auto" (the memory follows from the learned profile) and "all" (whole GPUs).
Result<std::optional<Bytes>> parse_memory(std::string_view text) {
  if (text == "auto" || text == kWholeGpus) return std::nullopt;
  const Bytes size = TRY(parse_size(text));
  // A number without the right unit (8 for 8GiB) would share the GPU with all other jobs.
  TRY(refuse_few_bytes(text, size));
  if (size == Bytes{}) {
    return fail(ErrorKind::usage,
                fmt::format("{} reserves no memory; write a size such as 8GiB, or "
                            "omit this option for whole GPUs",
                            in_quotes(text)));
  }
  if (size < kMinReservation) {
    return fail(ErrorKind::usage, fmt::format("{} is only {}, less than any job needs; write a "
                                              "size such as 8GiB",
                                              in_quotes(text), format_size(size)));
  }
  return size;
}

Result<Bytes> parse_total_memory(std::string_view text) {
  const Bytes size = TRY(parse_size(text));
  if (size != Bytes{}) TRY(refuse_few_bytes(text, size));
  return size;
}

Result<std::chrono::nanoseconds> parse_run_time(std::string_view text) {
  auto time = parse_duration(text);
  if (time && *time == std::chrono::nanoseconds::zero()) {
    return fail(
        ErrorKind::usage,
        fmt::format("{} is too short; write a duration such as 90s, 1h30m or 2d", in_quotes(text)));
  }
  // Other clients refuse records with a longer time, and then would not count the ticket.
  if (time && *time > kMaxRunTime) {
    return fail(ErrorKind::usage,
                fmt::format("{} is too long; the maximum is 3650d", in_quotes(text)));
  }
  return time;
}

// "0" needs no unit.
Result<std::chrono::nanoseconds> parse_timeout(std::string_view text) {
  return text == "0" ? std::chrono::nanoseconds::zero() : parse_duration(text);
}

Result<Policy> parse_policy(std::string_view text) {
  const auto* const found = std::find(kPolicies.begin(), kPolicies.end(), text);
  if (found != kPolicies.end()) return static_cast<Policy>(found - kPolicies.begin());
  return fail(ErrorKind::usage,
              fmt::format("{} is not a policy; use spread, pack or random", in_quotes(text)));
}

Result<std::string> parse_job(std::string_view text) {
  if (text.empty()) return fail(ErrorKind::usage, "the name is empty; write a name, such as train");
  return parse_public_text(text);
}

// An empty text would be part of every GPU's name. It is most likely a shell variable that is not
// set.
Result<std::string> parse_name(std::string_view text) {
  if (text.empty())
    return fail(ErrorKind::usage, "the name is empty; write a part of the GPU's name");
  return parse_public_text(text);
}

Result<std::string> parse_gpus(std::string_view text) {
  TRY(parse_gpu_list(text));
  return std::string(text);
}

// A reader that stores the result of `parse` in `target`, which is a part of `owner`.
template <class Target, class Value>
RequestValueReader make_reader(Target& target, Result<Value> (*parse)(std::string_view),
                               std::shared_ptr<RequestOptions> owner) {
  return [parse, &target, owner = std::move(owner)](std::string_view text) -> Result<void> {
    target = TRY(parse(text));
    return {};
  };
}

}  // namespace

Result<void> parse_bounded_number(std::string_view text, unsigned low, unsigned high,
                                  unsigned& target) {
  const auto number = parse_integer<unsigned>(text);
  if (!number || *number < low || *number > high) {
    return fail(ErrorKind::usage,
                fmt::format("{} is not a whole number from {} to {}", in_quotes(text), low, high));
  }
  target = *number;
  return {};
}

Result<std::string> parse_public_text(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return fail(ErrorKind::usage, fmt::format("{} has {} bytes; the maximum is {}", in_quotes(text),
                                              text.size(), kMaxTextBytes));
  }
  if (!is_utf8(text)) {
    return fail(ErrorKind::usage, fmt::format("{} is not UTF-8", in_quotes(text)));
  }
  return std::string(text);
}

void declare_request_values(const std::shared_ptr<RequestOptions>& options,
                            const RequestValueDeclarer& declare) {
  Request& request = options->request;
  const auto add = [&](const char* names, const char* type, const char* help, auto& target,
                       auto parse) {
    declare(names, type, help, make_reader(target, parse, options));
  };
  add("-n,--count", "N", "Number of GPUs, granted together (default 1)", options->count,
      parse_number<1, kMaxCount>);
  add("--gpu", "LIST", "Only these GPUs (0,2 or 0-3, UUIDs, or all), all of them\nunless -n is set",
      options->gpus, parse_gpus);
  add("--name", "TEXT", "Only GPUs with TEXT in their name, such as 3090", request.name,
      parse_name);
  declare("--mem", "SIZE",
          "Share GPUs: reserve SIZE on each, such as 8GiB, or auto\n(what earlier runs needed); "
          "default: all, whole GPUs",
          [options](std::string_view text) -> Result<void> {
            options->request.memory = TRY(parse_memory(text));
            options->auto_memory = text == "auto";
            return {};
          });
  add("--job", "NAME", "Job name under which memory and run time are learned", options->job,
      parse_job);
  add("--min-mem", "SIZE", "Only GPUs with at least this much memory in total", request.min_memory,
      parse_total_memory);
  add("--max-util", "PCT", "Only GPUs with at most PCT percent utilization",
      request.max_utilization_pct, parse_number<0, 100>);
  add("--max-mem-util", "PCT", "Only GPUs with at most PCT percent memory utilization",
      request.max_memory_utilization_pct, parse_number<0, 100>);
  add("--max-processes", "K", "Accept GPUs with up to K strangers (default 0)",
      request.max_processes, parse_number<0, kMaxCount>);
  add("--policy", "spread|pack|random", "Prefer the emptiest GPU (default), the fullest, or any",
      request.policy, parse_policy);
  add("--time", "DURATION", "Expected run time, such as 2h; short jobs can fill gaps", request.time,
      parse_run_time);
  add("--label", "TEXT", "Text shown next to the job", options->label, parse_public_text);
  add("--timeout", "DURATION", "Give up if not granted within this time, such as 10m",
      options->timeout, parse_timeout);
}

Result<void> validate_request(RequestOptions& options, ArgumentStyle style) {
  if (options.no_wait && options.timeout) {
    return fail(ErrorKind::usage,
                fmt::format("{} and {} contradict each other; use only one of them",
                            argument_name("--no-wait", style), argument_name("--timeout", style)));
  }
  unsigned& count = options.request.count;
  if (options.count) count = *options.count;
  if (options.gpus.empty() || options.gpus == kAllGpus) return {};
  const auto named = static_cast<unsigned>(parse_gpu_list(options.gpus)->size());
  if (!options.count) count = named;
  if (count <= named) return {};
  return fail(
      ErrorKind::usage,
      fmt::format("{} requests {} GPUs, but {} names only {}; name more GPUs, or request fewer",
                  argument_name("--count", style), count, argument_name("--gpu", style), named));
}

Result<void> check_request_defaults(const Configuration& configuration) {
  Result<void> checked;
  declare_request_values(
      std::make_shared<RequestOptions>(),
      [&](std::string_view names, const char*, const char*, const RequestValueReader& read) {
        const auto found = configuration.request_defaults.find(names.substr(names.rfind("--") + 2));
        if (!checked || found == configuration.request_defaults.end()) return;
        if (const auto value = read(found->second.value); !value) {
          checked = tl::make_unexpected(
              request_default_error(found->first, found->second, value.error().message));
        }
      });
  return checked;
}

Error request_default_error(std::string_view name, const Setting& setting,
                            std::string_view problem) {
  return setting_error(setting.source, setting.line, fmt::format("{}: {}", name, problem));
}

std::optional<std::string> builtin_request_default(std::string_view name) {
  if (name == "mem") return std::string(kWholeGpus);
  if (name == "policy")
    return std::string(kPolicies.at(static_cast<std::size_t>(Request().policy)));
  return std::nullopt;
}

std::optional<std::string> explain_decimal_size(std::string_view argument, std::string_view size) {
  const std::string unit =
      lower_case(size.substr(size.size() - std::min<std::size_t>(size.size(), 2)));
  if (unit != "kb" && unit != "mb" && unit != "gb" && unit != "tb") return std::nullopt;
  std::string binary(size.substr(0, size.size() - 2));
  binary += static_cast<char>(unit.front() - 'a' + 'A');
  binary += "iB";
  const auto meant = parse_size(size);
  const auto other = parse_size(binary);
  if (!meant || !other) return std::nullopt;
  return fmt::format("{} {} is {}; if you mean {}, write {}", argument, size, format_size(*meant),
                     format_size(*other), binary);
}

Result<RequestOptions> parse_request_keywords(const std::map<std::string, std::string>& values,
                                              bool no_wait) {
  auto options = std::make_shared<RequestOptions>();
  options->no_wait = no_wait;
  if (values.empty()) return *options;  // the common case
  Result<void> read;
  declare_request_values(options, [&](std::string_view names, const char*, const char*,
                                      const RequestValueReader& read_value) {
    const std::string_view flag = names.substr(names.rfind("--"));
    const std::string keyword = argument_name(flag, ArgumentStyle::keywords);
    const auto value = values.find(keyword.substr(0, keyword.size() - 1));
    if (value == values.end() || !read) return;
    if (auto parsed = read_value(value->second); !parsed) {
      read = fail(ErrorKind::usage, fmt::format("{}: {}", value->first, parsed.error().message));
    }
  });
  if (read) read = validate_request(*options, ArgumentStyle::keywords);
  if (!read) return tl::make_unexpected(read.error());
  return *options;
}

AcquireRequest make_acquire_request(const RequestOptions& options) {
  AcquireRequest request;
  request.gpu_request = options.request;
  request.gpus = options.gpus;
  request.wants_all_gpus = options.gpus == kAllGpus && !options.count;
  request.label = options.label;
  request.no_wait = options.no_wait;
  request.timeout = options.timeout;
  request.visible_devices = get_env("CUDA_VISIBLE_DEVICES");
  request.parent_lease = get_env_or_empty("BERTH_LEASE");
  return request;
}

}  // namespace berth
