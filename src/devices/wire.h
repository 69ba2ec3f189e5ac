// Serialises snapshots, samples and topologies between a probe's child process and its parent.
//
// Both ends are the same program, so the format needs no version. The reader still trusts nothing,
// because the child runs the driver's code: for any bytes, unpack() returns a value or nullopt.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "devices/gpu.h"

namespace berth::wire {

template <class T, class Of>
concept Is = std::same_as<std::remove_const_t<T>, Of>;

// The fields of each structure. Writer and Reader both use these functions as `archive`.
void fields(auto& archive, Is<Bytes> auto& bytes) {
  archive(bytes.count);
}
void fields(auto& archive, Is<GpuIndex> auto& index) {
  archive(index.card, index.instance);
}
void fields(auto& archive, Is<Ancestor> auto& ancestor) {
  archive(ancestor.pid, ancestor.uid, ancestor.name, ancestor.is_root);
}
void fields(auto& archive, Is<GpuProcess> auto& process) {
  archive(process.pid, process.kind, process.memory, process.name, process.uid, process.lineage,
          process.lease, process.framework);
}
void fields(auto& archive, Is<Gpu> auto& gpu) {
  archive(gpu.index, gpu.health, gpu.problem, gpu.uuid, gpu.name, gpu.memory_total, gpu.memory_used,
          gpu.memory_used_counts_reserved, gpu.memory_is_hosts, gpu.utilization_pct,
          gpu.memory_utilization_pct, gpu.temperature_c, gpu.power_w, gpu.performance_state,
          gpu.compute_mode, gpu.display_active, gpu.mig_without_instances, gpu.processes);
}
void fields(auto& archive, Is<GpuSample> auto& sample) {
  archive(sample.uuid, sample.memory_total, sample.memory_used, sample.utilization_pct,
          sample.power_w, sample.processes, sample.complete, sample.memory_is_hosts, sample.lost);
}
void fields(auto& archive, Is<Snapshot> auto& snapshot) {
  archive(snapshot.driver_version, snapshot.gpus);
}
void fields(auto& archive, Is<Connection> auto& connection) {
  archive(connection.a, connection.b, connection.proximity, connection.nvlinks);
}
void fields(auto& archive, Is<Topology> auto& topology) {
  archive(topology.connections);
}
void fields(auto& archive, Is<Error> auto& error) {
  archive(error.kind, error.message);
}

// The last value of each enumeration: the reader refuses larger numbers.
constexpr ErrorKind last_value(ErrorKind /*of*/) {
  return ErrorKind::permission;
}
constexpr ProcessKind last_value(ProcessKind /*of*/) {
  return ProcessKind::graphics;
}
constexpr Health last_value(Health /*of*/) {
  return Health::unreadable;
}
constexpr ComputeMode last_value(ComputeMode /*of*/) {
  return ComputeMode::prohibited;
}
constexpr Proximity last_value(Proximity /*of*/) {
  return Proximity::system;
}

class Writer {
 public:
  void operator()(const auto&... values) { (put(values), ...); }
  std::string release_bytes() { return std::move(out_); }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      fields(*this, value);
    }
  }
  void put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    out_ += text;
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) put(value);
  }

  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  void operator()(auto&... values) { (get(values), ...); }
  bool is_complete() const { return ok_ && in_.empty(); }

 private:
  template <class T>
  void get(T& value) {
    if constexpr (std::same_as<T, bool>) {
      std::uint8_t byte = 0;
      get(byte);
      if (byte > 1) ok_ = false;
      value = byte == 1;
    } else if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      get(number);
      // Compared as unsigned numbers, so that negative ones are too large.
      if (static_cast<std::uint64_t>(number) > static_cast<std::uint64_t>(last_value(T{}))) {
        ok_ = false;
        return;
      }
      value = static_cast<T>(number);
    } else if constexpr (std::is_arithmetic_v<T>) {
      if (in_.size() < sizeof value) {
        ok_ = false;
        return;
      }
      std::memcpy(&value, in_.data(), sizeof value);
      in_.remove_prefix(sizeof value);
    } else {
      fields(*this, value);
    }
  }
  void get(std::string& text) {
    const auto size = count();
    text = in_.substr(0, size);
    in_.remove_prefix(size);
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool present = false;
    get(present);
    if (present && ok_) get(value.emplace());
  }
  template <class T>
  void get(std::vector<T>& values) {
    const auto size = count();
    for (std::size_t i = 0; i < size && ok_; ++i) get(values.emplace_back());
  }
  // The number of elements that follow. Each takes at least one byte, so that a number larger than
  // the rest of the input is an error.
  std::size_t count() {
    std::uint32_t size = 0;
    get(size);
    if (size > in_.size()) ok_ = false;
    return ok_ ? size : 0;
  }

  std::string_view in_;
  bool ok_ = true;
};

template <class T>
std::string pack(const Result<T>& result) {
  Writer writer;
  writer(result.has_value());
  if (result) {
    writer(*result);
  } else {
    writer(result.error());
  }
  return writer.release_bytes();
}

// nullopt: `bytes` are not a result of pack<T>().
template <class T>
std::optional<Result<T>> unpack(std::string_view bytes) {
  if (bytes.empty() || bytes.front() < 0 || bytes.front() > 1) return std::nullopt;
  const bool has_value = bytes.front() == 1;
  Reader reader(bytes.substr(1));
  T value{};
  Error error{ErrorKind::no_driver, ""};
  if (has_value) {
    reader(value);
  } else {
    reader(error);
  }
  if (!reader.is_complete()) return std::nullopt;
  if (has_value) return Result<T>(std::move(value));
  return Result<T>(tl::make_unexpected(std::move(error)));
}

}  // namespace berth::wire
