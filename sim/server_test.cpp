// Tests of server.h: valid descriptions, every kind of invalid one, and thousands of damaged ones.
#include "sim/server.h"

#include <random>
#include <sys/stat.h>

#include "base/text.h"
#include "sim/test_support.h"

namespace berth::sim {
namespace {

constexpr std::array kServers{"lab", "nvlink8", "workstation", "mig", "sick"};

std::string text_of(const std::string& server) {
  std::ifstream file(fmt::format("{}/{}.json", BERTH_TEST_SERVERS_DIR, server));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string problem_of(std::string_view json) {
  const auto server = parse_server(json, "test.json", "id");
  if (server) return "";
  EXPECT_EQ(server.error().kind, ErrorKind::usage);
  EXPECT_TRUE(server.error().message.starts_with("BERTH_SIM: 'test.json': "))
      << server.error().message;
  return server.error().message;
}

void expect_problem(std::string_view json, std::string_view part) {
  EXPECT_NE(problem_of(json).find(part), std::string::npos) << json << "\n" << problem_of(json);
}

// Expects a problem in `rest`, which follows a valid list of cards.
void expect_problem_beside(std::string_view rest, std::string_view part) {
  expect_problem(fmt::format(R"({{"gpus": [{{"memory": "24GiB", "count": 2}}], {}}})", rest), part);
}

// Reading all these links would take gigabytes.
TEST(Server, TooManyLinksAreRefusedAtTheFirst) {
  std::string all;
  for (int i = 0; i < 64; ++i) all += fmt::format("{}{}", i == 0 ? "" : ",", i);
  std::string links;
  for (int i = 0; i < 4096; ++i) {
    links += fmt::format(R"({}{{"gpus":[{}],"links":18}})", i == 0 ? "" : ",", all);
  }
  expect_problem(
      fmt::format(R"({{"gpus": [{{"memory": "1GiB", "count": 64}}], "nvlink": [{}]}})", links),
      "nvlink[0]: \"links\" give card 0 more than");
}

TEST(Server, ShortForm) {
  const auto server = read_server("4x24GiB", "id");
  ASSERT_TRUE(server) << server.error().message;
  ASSERT_EQ(server->cards.size(), 4U);
  EXPECT_EQ(server->cards[0].memory, gib(24));
  EXPECT_EQ(server->cards[0].name, "Simulated 24 GiB GPU");
  EXPECT_EQ(server->driver_version_text, "570.86.15");
  EXPECT_LT(server->cards[0].pci, server->cards[1].pci);
  EXPECT_NE(server->cards[0].uuid, server->cards[1].uuid);
  EXPECT_EQ(server->cards[0].uuid, read_server("1x1MiB", "id")->cards[0].uuid);
  EXPECT_NE(server->cards[0].uuid, read_server("4x24GiB", "other")->cards[0].uuid);
  EXPECT_EQ(read_server("64x4TiB", "id")->cards.size(), 64U);
  for (const char* bad : {"0x24GiB", "65x24GiB", "4x", "4x24", "4x-1GiB", "4x0GiB", "4x5TiB",
                          "4x1023KiB", "99999999999x1GiB", "4x24GiB\x1b[2J"}) {
    const auto refused = read_server(bad, "id");
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().kind, ErrorKind::usage);
    EXPECT_EQ(printable(refused.error().message), refused.error().message);
  }
}

TEST(Server, FilesThatAreNone) {
  const TestFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("fifo").c_str(), 0600), 0);
  folder.write("large.json", std::string((1 << 20) + 1, ' '));
  for (const std::string& bad :
       {folder.file("absent"), folder.file("fifo"), folder.file("."), folder.file("large.json"),
        std::string("/dev/zero"), std::string("nonsense")}) {
    const auto refused = read_server(bad, "id");
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().kind, ErrorKind::usage) << bad;
    EXPECT_TRUE(refused.error().message.starts_with("BERTH_SIM: ")) << refused.error().message;
  }
}

TEST(Server, TheFilesThatAreShipped) {
  for (const std::string name : kServers) EXPECT_EQ(problem_of(text_of(name)), "") << name;
  const auto mig = parse_server(text_of("mig"), "mig", "id");
  ASSERT_TRUE(mig);
  EXPECT_TRUE(mig->cards[0].mig_mode);
  EXPECT_FALSE(mig->cards[0].instances[1]);
  EXPECT_TRUE(mig->cards[0].instances[0]->uuid.starts_with("MIG-"));
  EXPECT_TRUE(mig->cards[2].mig_mode && mig->cards[2].instances.empty());
  const auto nvlink = parse_server(text_of("nvlink8"), "nvlink8", "id");
  ASSERT_TRUE(nvlink);
  ASSERT_EQ(nvlink->cards[7].nvlinks.size(), 18U);
  for (const Card& card : nvlink->cards) EXPECT_NE(card.pci, nvlink->cards[0].nvlinks[0]);
}

TEST(Server, Defaults) {
  const auto server = parse_server(R"({"gpus": [{"memory": "2GiB"}],
    "strangers": [{"gpu": 0, "memory": "1GiB"}, {"gpu": 0, "memory": null}]})",
                                   "x", "id");
  ASSERT_TRUE(server);
  EXPECT_EQ(server->cards[0].name, "Simulated 2 GiB GPU");
  EXPECT_EQ(server->strangers[0].pid, 5000001U);
  EXPECT_EQ(server->strangers[1].pid, 5000002U);
  EXPECT_FALSE(server->strangers[1].memory);
}

TEST(Server, DirectLinksArePerPair) {
  const auto server = parse_server(
      R"({"gpus": [{"memory": "2GiB", "count": 3}], "nvlink": [{"gpus": [0, 1, 2], "links": 4}]})",
      "x", "id");
  ASSERT_TRUE(server);
  ASSERT_EQ(server->cards[0].nvlinks.size(), 8U);
  EXPECT_EQ(server->cards[0].nvlinks[0], server->cards[1].pci);
  EXPECT_EQ(server->cards[0].nvlinks[7], server->cards[2].pci);
}

TEST(Server, InstancesOfOldDriversAreNamedAfterTheirCard) {
  const auto server = parse_server(R"({"driver_version": "460.32.03", "gpus": [
    {"memory": "40GiB", "mig": [{"memory": "5GiB", "name": "1g.5gb"}]}]})",
                                   "x", "id");
  ASSERT_TRUE(server);
  EXPECT_EQ(server->cards[0].instances[0]->uuid, fmt::format("MIG-{}/1/0", server->cards[0].uuid));
}

TEST(Server, MalformedJsonSaysWhere) {
  expect_problem("{\"gpus\":\n [", "line 2, byte 12");
  expect_problem("{\"gpus\": x}", "line 1, byte 10");
  expect_problem("", "ends too early");
  expect_problem("[]", "must be an object");
  expect_problem("{} {}", "not valid JSON");
  expect_problem(R"({"gpus": [], "gpus": []})", "key 'gpus' twice");
  expect_problem("{\"gpus\": \"\xff\"}", "not valid JSON");
  EXPECT_NE(problem_of(std::string(100'000, '[')), "");
}

TEST(Server, WrongCards) {
  expect_problem("{}", "must describe 1 to 64 cards");
  expect_problem(R"({"gpus": []})", "must describe 1 to 64 cards");
  expect_problem(R"({"gpus": 4})", "must be a list");
  expect_problem(R"({"gpus": [4]})", "gpus[0] must be an object");
  expect_problem(R"({"gpus": [{}]})", "gpus[0]: \"memory\" is missing");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "colour": 1}]})",
                 "gpus[0] has the unknown key 'colour'");
  expect_problem(R"({"gpus": [{"memory": "1GiB"}], "gpu": []})", "unknown key 'gpu'");
  expect_problem(R"({"gpus": [{"memory": 24}]})", "must be a size as text");
  expect_problem(R"({"gpus": [{"memory": "-1GiB"}]})", "is negative");
  expect_problem(R"({"gpus": [{"memory": "5TiB"}]})", "must be 1 MiB to 4 TiB");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "count": 65}]})", "from 1 to 64");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "count": 1.5}]})", "whole number");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "count": 18446744073709551615}]})",
                 "whole number");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "count": 64}, {"memory": "1GiB"}]})",
                 "1 to 64 cards");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "name": ""}]})", "1 to 63 bytes");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "name": "a\nb"}]})",
                 "control or invisible characters: 'a\\nb'");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "name": "a\u202eb"}]})", "invisible");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "name": 5}]})", "must be text");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "reserved_memory": "2GiB"}]})", "reserved_memory");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "uuid": "GPU-1"}]})", "must look like GPU-");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "pci": "3B:00.0"}]})",
                 "must look like 0000:3B:00.0");
  expect_problem(
      R"({"gpus": [{"memory": "1GiB", "pci": "0000:02:00.0"}, {"memory": "1GiB", "pci": "0000:02:00.0"}]})",
      "PCI order");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "pci": "0000:02:00.0", "count": 2}]})",
                 "each card has its own");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "display": 1}]})", "true or false");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "speed": "fast"}]})", "must be a number");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "compute_mode": "off"}]})", "one of \"default\"");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "idle_power_w": 400}]})", "power_limit_w");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "mig": [{"memory": "2GiB", "name": "x"}]}]})",
                 "more memory than");
  expect_problem(R"({"gpus": [{"memory": "1GiB", "mig": [{"memory": "1MiB"}]}]})",
                 "gpus[0].mig[0]: \"name\" is missing");
  expect_problem(
      R"({"gpus": [{"memory": "1GiB", "mig": [null,null,null,null,null,null,null,null]}]})",
      "at most 7");
  constexpr std::string_view uuid =
      R"({"memory": "1GiB", "uuid": "GPU-01234567-89ab-cdef-0123-456789abcdef"})";
  expect_problem(fmt::format(R"({{"gpus": [{}, {}]}})", uuid, uuid), "two GPUs have the uuid");
}

TEST(Server, WrongRest) {
  expect_problem_beside(R"("driver_version": "new")", "must look like 570.86.15");
  expect_problem_beside(R"("driver_version": "570.86.")", "must look like 570.86.15");
  expect_problem_beside(R"("cuda_version": "12.8.1")", "must look like 12.8");
  expect_problem_beside(R"("nvlink": [{"gpus": [0, 2], "links": 1}])", "from 0 to 1");
  expect_problem_beside(R"("nvlink": [{"gpus": [0, 0], "links": 1}])", "different numbers");
  expect_problem_beside(R"("nvlink": [{"gpus": [0], "links": 1}])", "two cards or more");
  expect_problem_beside(R"("nvlink": [{"gpus": [0, 1], "links": 37}])", "from 1 to 36");
  expect_problem_beside(
      R"("nvlink": [{"gpus": [0, 1], "links": 20}, {"gpus": [0, 1], "links": 20}])",
      "more than 36");
  expect_problem_beside(R"("strangers": [{"memory": null}])", "\"gpu\" is missing");
  expect_problem_beside(R"("strangers": [{"gpu": 2, "memory": null}])", "from 0 to 1");
  expect_problem_beside(R"("strangers": [{"gpu": "0:0", "memory": null}])", "MIG instance");
  expect_problem_beside(R"("strangers": [{"gpu": 0}])", "\"memory\" is missing");
  expect_problem_beside(R"("strangers": [{"gpu": 0, "memory": null, "type": "evil"}])", "one of");
  expect_problem_beside(R"("strangers": [{"gpu": 0, "memory": null, "utilization": 101}])",
                        "0 to 100");
  expect_problem_beside(
      R"("strangers": [{"gpu": 0, "memory": null, "after": "2s", "until": "1s"}])", "later than");
  expect_problem_beside(R"("strangers": [{"gpu": 0, "memory": null, "after": 2}])",
                        "duration as text");
}

TEST(Server, WrongFaults) {
  expect_problem_beside(R"("faults": [{"call": "nvmlInit"}])", "exactly one of");
  expect_problem_beside(R"("faults": [{"call": "nvmlInit", "hang": true, "answer": 3}])",
                        "exactly one of");
  expect_problem_beside(R"("faults": [{"call": "nvmlStart", "hang": true}])", "must be a call of");
  expect_problem_beside(R"("faults": [{"hang": true}])", "must be a call of");
  expect_problem_beside(R"("faults": [{"call": "nvmlInit", "hang": false}])", "can only be true");
  expect_problem_beside(R"("faults": [{"call": "nvmlInit", "answer": 0}])", "from 1 to 999");
  expect_problem_beside(R"("faults": [{"call": "nvmlInit", "answer": "no_device"}])",
                        "'no_device' is not");
  expect_problem_beside(R"("faults": [{"lost": true}])", "needs \"gpu\"");
  expect_problem_beside(R"("faults": [{"gpu": 0, "lost": true, "call": "nvmlInit"}])",
                        "\"lost\" cannot");
  EXPECT_EQ(problem_of(R"({"gpus": [{"memory": "1GiB"}], "faults": [
    {"call": "cuInit", "answer": "no_device"}, {"call": "nvmlInit", "answer": "lib_rm_version_mismatch"},
    {"call": "nvmlDeviceGetMemoryInfo_v2", "gpu": 0, "delay": "1s", "after": "5s", "until": "6s"}]})"),
            "");
}

// A damaged description is either still valid, or gives an error of one printable line.
TEST(Server, DamagedFiles) {
  std::mt19937 random(20240607);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  std::size_t refused = 0;
  for (const std::string name : kServers) {
    const std::string good = text_of(name);
    for (int round = 0; round < 1500; ++round) {
      std::string text = good;
      for (std::size_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) {
        const std::size_t at = below(text.size());
        switch (below(4)) {
          case 0:
            text[at] = static_cast<char>(below(256));
            break;
          case 1:
            text.erase(at, 1 + below(8));
            break;
          case 2:
            text.insert(at, text.substr(below(text.size()), below(16)));
            break;
          default:
            if (below(8) == 0) text.resize(at);
            text.insert(at, 1, "0123456789-\"{}[],:e"[below(19)]);
        }
      }
      const auto server = parse_server(text, "damaged.json", "id");
      if (server) continue;
      ++refused;
      const std::string& message = server.error().message;
      ASSERT_EQ(printable(message), message) << name << " round " << round;
      ASSERT_LT(message.size(), 600U) << message;
    }
  }
  EXPECT_GT(refused, 4000U);
}

}  // namespace
}  // namespace berth::sim
