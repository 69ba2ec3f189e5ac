// Measures the cost of a snapshot of the GPUs: in a session, through the guarded probe, and as
// text.
#include <benchmark/benchmark.h>

#include "cli/output/status_text.h"
#include "devices/guarded_probe.h"
#include "devices/nvml_session.h"
#include "status/status.h"
#include "status/status_json.h"

namespace berth {
namespace {

// BERTH_SIM selects the GPUs; bench.py sets it.
void session_snapshot(benchmark::State& state) {
  NvmlSession session(BERTH_BENCH_DRIVER);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(session.snapshot().value());
}
BENCHMARK(session_snapshot)->Unit(benchmark::kMicrosecond);

void guarded_snapshot(benchmark::State& state) {
  GuardedProbeSettings settings;
  settings.library = BERTH_BENCH_DRIVER;
  GuardedProbe probe(std::move(settings));
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(probe.snapshot().value());
}
BENCHMARK(guarded_snapshot)->Unit(benchmark::kMicrosecond)->UseRealTime();

void render_json(benchmark::State& state) {
  NvmlSession session(BERTH_BENCH_DRIVER);
  const Status status = observe_host(session, true).value();
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(status_json(status, JsonForm::pretty));
}
BENCHMARK(render_json)->Unit(benchmark::kMicrosecond);

void render_table(benchmark::State& state) {
  NvmlSession session(BERTH_BENCH_DRIVER);
  const Status status = observe_host(session, true).value();
  Terminal terminal;
  terminal.width = 80;
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(status_text(status, terminal, 0, StatusDetail::brief));
}
BENCHMARK(render_table)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace berth
