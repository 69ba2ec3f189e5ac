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
  EXPECT_EQ(model_.sort(), SortOrder::free_first);
  EXPECT_EQ(gpus(), (std::vector<std::string>{"3", "0", "1", "2"}));
  type_keys(model_, "s");
  EXPECT_EQ(gpus(), (std::vector<std::string>{"0", "1", "2", "3"}));
}

TEST_F(ModelTest, the_list_has_as_many_rows_as_fit) {
  TopSnapshot next = make_snapshot();
  add_process(next.hosts[0], 1, "bbbbbbbb", 4712);
  model_.set_snapshot(share_snapshot(next));
  // 4 GPUs, 3 leases, 1 process, and 2 tickets with their reasons.
  const auto rows = [&](std::size_t height) {
    model_.fit_list(height);
    return std::pair(model_.gpu_rows().size(), model_.queue().size());
  };
  EXPECT_EQ(rows(12), std::pair(8UL, 4UL));
  EXPECT_EQ(rows(11), std::pair(7UL, 4UL));
  EXPECT_EQ(rows(10), std::pair(4UL, 4UL));
  EXPECT_EQ(rows(8), std::pair(4UL, 4UL));
  EXPECT_EQ(rows(7), std::pair(4UL, 2UL));
  EXPECT_EQ(rows(1), std::pair(4UL, 2UL));
  EXPECT_EQ(model_.gpu_rows()[0].inline_lease->id, "aaaaaaaa");
  EXPECT_EQ(model_.gpu_rows()[3].inline_lease, nullptr);
}

TEST_F(ModelTest, v_chooses_the_rows_whatever_fits) {
  TopSnapshot next = make_snapshot();
  add_process(next.hosts[0], 1, "bbbbbbbb", 4712);
  model_.set_snapshot(share_snapshot(next));
  std::vector<std::size_t> sizes;
  for (int i = 0; i < 4; ++i) {
    type_keys(model_, "v");
    model_.fit_list(100);
    sizes.push_back(model_.gpu_rows().size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 7, 8, 8}));
  EXPECT_FALSE(model_.chosen_detail());
  type_keys(model_, "vv");
  model_.fit_list(1);
  EXPECT_EQ(model_.gpu_rows().size(), 7U);
}

TEST_F(ModelTest, a_shared_gpu_has_a_line_for_each_lease_also_in_a_compact_list) {
  TopSnapshot next = make_snapshot();
  Record second = record("eeeeeeee", kOther, "python second.py");
  second.request.memory = gib(4);
  add_lease(next.hosts[0], {0}, second);
  add_process(next.hosts[0], 3, "", 4713);  // a stranger
  next.hosts[0].gpus[2].state_reason = {GpuState::drained, "drained by root"};
  model_.set_snapshot(share_snapshot(next));
  model_.fit_list(1);
  std::vector<RowKind> kinds;
  for (const Row& row : model_.gpu_rows()) kinds.push_back(row.kind);
  const auto g = RowKind::gpu;
  EXPECT_EQ(kinds, (std::vector{g, RowKind::lease, g, g, RowKind::note, g}));
  EXPECT_EQ(model_.gpu_rows()[5].inline_process->process.pid, 4713);
}

TEST_F(ModelTest, the_gpu_of_a_lease_is_selected_if_the_lease_has_no_row_any_more) {
  type_keys(model_, "jjj");
  EXPECT_EQ(selected(), "lease bbbbbbbb");
  model_.fit_list(1);
  EXPECT_EQ(selected(), "gpu GPU-1");
  EXPECT_EQ(notice(), "");
}

TEST_F(ModelTest, a_click_selects_and_a_double_click_shows_details) {
  const RowKey lease = make_row_key(model_.gpu_rows()[3]);
  model_.handle_click(lease, false);
  EXPECT_EQ(selected(), "lease bbbbbbbb");
  EXPECT_EQ(model_.mode(), Mode::list);
  model_.handle_click(std::nullopt, true);  // on an empty line
  EXPECT_EQ(selected(), "lease bbbbbbbb");
  EXPECT_EQ(model_.mode(), Mode::list);
  model_.handle_click(make_row_key(model_.queue()[0]), true);
  EXPECT_EQ(selected(), "ticket cccccccc");
  EXPECT_EQ(model_.mode(), Mode::details);
  model_.handle_click(lease, false);  // the list is not shown
  EXPECT_EQ(selected(), "ticket cccccccc");
}

TEST_F(ModelTest, a_click_on_a_line_whose_lease_has_ended_changes_nothing) {
  const RowKey lease = make_row_key(model_.gpu_rows()[3]);
  TopSnapshot next = make_snapshot();
  next.hosts[0].leases.pop_back();
  for (const std::size_t i : {1UL, 2UL}) next.hosts[0].gpus[i].view.leases.clear();
  model_.set_snapshot(share_snapshot(next));
  model_.handle_click(lease, true);
  EXPECT_EQ(selected(), "gpu GPU-0");
  EXPECT_EQ(model_.mode(), Mode::list);
}

TEST_F(ModelTest, the_wheel_moves_the_selection_and_answers_no_question) {
  model_.handle_key({KeyKind::wheel_down});
  EXPECT_EQ(selected(), "lease aaaaaaaa");
  model_.handle_key({KeyKind::wheel_up});
  EXPECT_EQ(selected(), "gpu GPU-0");
  type_keys(model_, "r");
  ASSERT_EQ(model_.mode(), Mode::confirm);
  model_.handle_key({KeyKind::wheel_down});
  model_.handle_click(make_row_key(model_.gpu_rows()[3]), true);
  EXPECT_EQ(model_.mode(), Mode::confirm);
  EXPECT_EQ(selected(), "gpu GPU-0");
  EXPECT_TRUE(type_keys(model_, "y").action);
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
  EXPECT_TRUE(notice_has({"lease of a shell", "press r"}));
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
  EXPECT_TRUE(notice_has({"lease aaaaaaaa", "job", "press c"}));
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
