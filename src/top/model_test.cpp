// Tests of the keys, and that the selection stays on the same GPU, lease or ticket.
#include "top/model.h"

#include <gtest/gtest.h>

#include "top/testing/snapshots.h"

namespace berth::top {
namespace {

using namespace testing;

class ModelTest : public ::testing::Test {
 protected:
  ModelTest() { model_.set_snapshot(share_snapshot(make_snapshot())); }

  std::vector<std::string> gpus() const {
    std::vector<std::string> indices;
    for (const Row& row : model_.gpu_rows()) {
      if (row.kind == RowKind::gpu) indices.push_back(to_string(row.gpu->view.gpu.index));
    }
    return indices;
  }
  // "gpu GPU-0", "lease aaaaaaaa", "ticket cccccccc".
  std::string selected() const {
    const Row* row = model_.selected();
    if (row == nullptr) return "nothing";
    if (row->ticket != nullptr) return "ticket " + row->ticket->record.id;
    if (row->lease != nullptr) return "lease " + row->lease->id;
    return "gpu " + *row->gpu->view.gpu.uuid;
  }
  std::string notice() const { return model_.notice() ? model_.notice()->text : ""; }
  // Whether the notice has all of these parts.
  ::testing::AssertionResult notice_has(const std::vector<std::string>& parts) const {
    for (const std::string& part : parts) {
      if (notice().find(part) == std::string::npos) {
        return ::testing::AssertionFailure() << "'" << part << "' is not in '" << notice() << "'";
      }
    }
    return ::testing::AssertionSuccess();
  }

  Model model_{kViewer};
};

TEST_F(ModelTest, every_gpu_has_its_leases_below_it) {
  std::vector<RowKind> kinds;
  for (const Row& row : model_.gpu_rows()) kinds.push_back(row.kind);
  const auto g = RowKind::gpu;
  const auto l = RowKind::lease;
  EXPECT_EQ(kinds, (std::vector{g, l, g, l, g, l, g}));
  EXPECT_EQ(model_.gpu_rows()[3].shown_at_gpu, "");
  EXPECT_EQ(model_.gpu_rows()[5].shown_at_gpu, "1");
  EXPECT_EQ(model_.queue().size(), 4U);  // two tickets, each with its reason
}

TEST_F(ModelTest, sorts_with_the_unknown_last) {
  EXPECT_EQ(gpus(), (std::vector<std::string>{"0", "1", "2", "3"}));
  type_keys(model_, "s");
  EXPECT_EQ(model_.sort(), SortOrder::user);
  EXPECT_EQ(gpus(), (std::vector<std::string>{"1", "2", "0", "3"}));
  type_keys(model_, "s");
  EXPECT_EQ(gpus(), (std::vector<std::string>{"1", "2", "0", "3"}));
  type_keys(model_, "s");
  EXPECT_EQ(model_.sort(), SortOrder::utilization);
  EXPECT_EQ(gpus(), (std::vector<std::string>{"1", "2", "0", "3"}));
  type_keys(model_, "s");
  EXPECT_EQ(gpus(), (std::vector<std::string>{"0", "1", "2", "3"}));
}

TEST_F(ModelTest, the_filter_works_while_it_is_typed) {
  type_keys(model_, "f" + std::to_string(kViewer));
  EXPECT_EQ(gpus(), (std::vector<std::string>{"0"}));
  EXPECT_EQ(model_.queue().size(), 2U);
  model_.handle_key({KeyKind::erase});
  EXPECT_EQ(gpus().size(), 3U);  // the filter matches both users
  model_.handle_key({KeyKind::enter});
  EXPECT_EQ(model_.mode(), Mode::list);
  EXPECT_EQ(gpus().size(), 3U);
  model_.handle_key({KeyKind::escape});
  EXPECT_EQ(gpus().size(), 4U);
}

TEST_F(ModelTest, keys_are_letters_while_typing_a_filter) {
  type_keys(model_, "fq");
  EXPECT_EQ(model_.filter(), "q");
  EXPECT_TRUE(gpus().empty());
  EXPECT_EQ(selected(), "nothing");
  type_keys(model_, "c");
  model_.handle_key({KeyKind::escape});
  EXPECT_NE(selected(), "nothing");
  EXPECT_TRUE(type_keys(model_, "q").quit);
}

TEST_F(ModelTest, moves_over_gpus_leases_and_tickets) {
  EXPECT_EQ(selected(), "gpu GPU-0");
  type_keys(model_, "j");
  EXPECT_EQ(selected(), "lease aaaaaaaa");
  model_.handle_key({KeyKind::up});
  model_.handle_key({KeyKind::up});
  EXPECT_EQ(selected(), "gpu GPU-0");
  type_keys(model_, "G");
  EXPECT_EQ(selected(), "ticket dddddddd");
  type_keys(model_, "k");
  EXPECT_EQ(selected(), "ticket cccccccc");
  model_.handle_key({KeyKind::tab});
  EXPECT_EQ(selected(), "gpu GPU-0");
  model_.handle_key({KeyKind::tab});
  EXPECT_EQ(selected(), "ticket cccccccc");
}

TEST_F(ModelTest, the_selection_stays_on_the_same_thing) {
  type_keys(model_, "Gk");
  TopSnapshot next = make_snapshot();
  next.hosts[0].queue.insert(next.hosts[0].queue.begin(), next.hosts[0].queue[1]);
  next.hosts[0].queue[0].record.id = "eeeeeeee";
  model_.set_snapshot(share_snapshot(next));
  EXPECT_EQ(selected(), "ticket cccccccc");
  type_keys(model_, "s");
  EXPECT_EQ(selected(), "ticket cccccccc");
  next.hosts[0].queue.clear();
  model_.set_snapshot(share_snapshot(next));
  EXPECT_EQ(selected(), "gpu GPU-3");  // the last row
  model_.set_snapshot(share_snapshot({}));
  EXPECT_EQ(selected(), "nothing");
  type_keys(model_, "jkcr");
  EXPECT_EQ(model_.mode(), Mode::list);
}

TEST_F(ModelTest, cancels_an_own_ticket_after_confirmation) {
  type_keys(model_, "Gkc");
  ASSERT_TRUE(model_.action());
  EXPECT_NE(model_.action()->question.find("cccccccc (python mine.py)"), std::string::npos);
  EXPECT_FALSE(type_keys(model_, "x").action);
  EXPECT_NE(notice(), "");
  type_keys(model_, "c");
  const auto outcome = type_keys(model_, "y");
  ASSERT_TRUE(outcome.action);
  EXPECT_EQ(outcome.action->kind, PendingAction::Kind::cancel);
  EXPECT_EQ(outcome.action->id, "cccccccc");
  EXPECT_EQ(model_.mode(), Mode::list);
}

TEST_F(ModelTest, enter_and_escape_do_not_confirm) {
  type_keys(model_, "Gkc");
  EXPECT_FALSE(model_.handle_key({KeyKind::enter}).action);
  type_keys(model_, "c");
  EXPECT_FALSE(model_.handle_key({KeyKind::escape}).action);
  EXPECT_FALSE(type_keys(model_, "y").action);
}

TEST_F(ModelTest, explains_why_an_action_is_refused) {
  type_keys(model_, "Gc");
  EXPECT_TRUE(notice_has({"ticket dddddddd", "4000001", "root", "cancel"}));
  type_keys(model_, "r");
  EXPECT_TRUE(notice_has({"lease", "ticket", "press c"}));
  type_keys(model_, "gc");
  EXPECT_TRUE(notice_has({"c ", "ticket", "queue"}));
  type_keys(model_, "jjr");
  EXPECT_TRUE(notice_has({"lease bbbbbbbb", "4000001", "root", "release"}));
  type_keys(model_, "jjjjr");  // GPU 3
  EXPECT_TRUE(notice_has({"no lease", "GPU 3"}));
  EXPECT_EQ(model_.mode(), Mode::list);
}

TEST_F(ModelTest, releases_a_shells_lease_also_from_its_gpu_row) {
  type_keys(model_, "r");
  ASSERT_TRUE(model_.action());
  EXPECT_NE(model_.action()->question.find("GPU 0"), std::string::npos);
  const auto outcome = type_keys(model_, "y");
  ASSERT_TRUE(outcome.action);
  EXPECT_EQ(outcome.action->kind, PendingAction::Kind::release);
  EXPECT_EQ(outcome.action->id, "aaaaaaaa");
}

TEST_F(ModelTest, refuses_to_release_leases_of_jobs_and_of_other_hosts) {
  TopSnapshot next = make_snapshot();
  next.hosts[0].leases[0].holder = HolderKind::job;
  model_.set_snapshot(share_snapshot(next));
  type_keys(model_, "r");
  EXPECT_TRUE(notice_has({"lease aaaaaaaa", "job", "kill 4711"}));
  next = make_snapshot();
  next.hosts[0].is_remote = true;
  model_.set_snapshot(share_snapshot(next));
  type_keys(model_, "r");
  EXPECT_TRUE(notice_has({"lease aaaaaaaa", "gpu-a", "berth release aaaaaaaa"}));
}

TEST_F(ModelTest, root_may_end_other_users_leases_and_sees_the_owner) {
  Model root(0);
  root.set_snapshot(share_snapshot(make_snapshot()));
  type_keys(root, "Gc");
  ASSERT_TRUE(root.action());
  EXPECT_NE(root.action()->question.find("dddddddd of 4000001"), std::string::npos);
}

TEST_F(ModelTest, a_pause_keeps_the_snapshot) {
  type_keys(model_, "p");
  model_.set_snapshot(share_snapshot({}));
  EXPECT_EQ(gpus().size(), 4U);
  type_keys(model_, "p");
  EXPECT_EQ(gpus().size(), 0U);
}

TEST_F(ModelTest, details_close_when_their_subject_has_ended) {
  type_keys(model_, "G");
  model_.handle_key({KeyKind::enter});
  EXPECT_EQ(model_.mode(), Mode::details);
  TopSnapshot next = make_snapshot();
  next.hosts[0].queue.pop_back();
  model_.set_snapshot(share_snapshot(next));
  EXPECT_EQ(model_.mode(), Mode::list);
  EXPECT_NE(notice(), "");
}

}  // namespace
}  // namespace berth::top
