// A small model that any number of servers can save, and functions that damage files.
#ifndef WEIR_TESTS_FRAMEWORK_CHECKPOINT_FIXTURE_H_
#define WEIR_TESTS_FRAMEWORK_CHECKPOINT_FIXTURE_H_

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/shard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {

#define ASSERT_OK(expr)                                     \
  do {                                                      \
    const absl::Status weir_test_status = (expr);           \
    ASSERT_TRUE(weir_test_status.ok()) << weir_test_status; \
  } while (false)

inline std::string FreshDir(const std::string& name) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/", name);
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  return dir;
}

inline void FlipBit(const std::string& file, int64_t byte) {
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(byte);
  const char was = static_cast<char>(f.get());
  f.seekp(byte);
  f.put(static_cast<char>(was ^ 4));
}

inline void CutFile(const std::string& file, int64_t bytes_kept) {
  std::filesystem::resize_file(file, static_cast<uintmax_t>(bytes_kept));
}

// Variables "w" [6, 4] with state "moment1" and scalar "step", "b" [3] without state, table "t" of width 2 with state
// "moment" of 2.
struct ToyModel {
  std::vector<float> w, w_moment, b;
  float step = 7;
  std::map<int64_t, std::vector<float>> rows;

  static ToyModel Make() {
    ToyModel m;
    for (int i = 0; i < 24; ++i) m.w.push_back(0.5f * static_cast<float>(i) - 3);
    for (int i = 0; i < 24; ++i) m.w_moment.push_back(100 + static_cast<float>(i));
    m.b = {-0.0f, 1, 2};
    for (const int64_t id : {int64_t{5}, int64_t{-1}, INT64_MIN, INT64_MAX, int64_t{0}, int64_t{123456789012}}) {
      const float x = static_cast<float>(m.rows.size());
      m.rows[id] = {x, -x, 10 + x, 20 + x};
    }
    return m;
  }

  static TableLayout Layout() { return {.table = "t", .width = 2, .states = {{"moment", 2}}, .logical_shards = 16}; }
  static DensePiece W(int64_t begin, std::string state = "", bool scalar = false) {
    return {.variable = "w",
            .whole_dims = {6, 4},
            .element_begin = begin,
            .state_name = std::move(state),
            .scalar = scalar};
  }
  static DensePiece B() { return {.variable = "b", .whole_dims = {3}}; }

  // Returns the rows of w that server s of n owns: [first, last).
  static std::pair<int64_t, int64_t> RowsOf(int s, int n) { return {6 * s / n, 6 * (s + 1) / n}; }

  absl::StatusOr<v1::CheckpointShard> SaveShard(const std::string& dir, int server, int servers) const {
    ASSIGN_OR_RETURN(auto writer, ShardWriter::Create(absl::StrCat(dir, "/", ShardFileName(server))));
    const auto [first, last] = RowsOf(server, servers);
    if (last > first) {
      const auto part = [f = first * 4, n = (last - first) * 4](const std::vector<float>& all) {
        return absl::MakeConstSpan(all).subspan(static_cast<size_t>(f), static_cast<size_t>(n));
      };
      RETURN_IF_ERROR(writer->AddDense(W(first * 4), part(w)));
      RETURN_IF_ERROR(writer->AddDense(W(first * 4, "moment1"), part(w_moment)));
      RETURN_IF_ERROR(writer->AddDense(W(first * 4, "step", /*scalar=*/true), {step}));
    }
    if (server == servers - 1) RETURN_IF_ERROR(writer->AddDense(B(), b));
    RETURN_IF_ERROR(writer->BeginTable(Layout()));
    for (const auto& [id, row] : rows) {
      if (ShardServer(LogicalShard(id, 16), 16, servers) == server) RETURN_IF_ERROR(writer->AddRow(id, row));
    }
    RETURN_IF_ERROR(writer->EndTable());
    return writer->Finish();
  }

  // Saves and publishes; returns the path of the step's directory.
  absl::StatusOr<std::string> Save(const std::string& dir, int64_t step_number, int servers,
                                   v1::CheckpointManifest manifest = {}) const {
    ASSIGN_OR_RETURN(const std::string name, BeginCheckpoint(dir, step_number));
    manifest.set_job("toy");
    manifest.set_step(step_number);
    for (int s = 0; s < servers; ++s) {
      ASSIGN_OR_RETURN(*manifest.add_shards(), SaveShard(absl::StrCat(dir, "/", name), s, servers));
    }
    return PublishCheckpoint(dir, name, manifest);
  }

  // Loads into `into` (sized like Make()) the share of a checkpoint that server `server` of `servers` owns.
  static absl::Status LoadShare(const std::string& path, const v1::CheckpointManifest& manifest, int server,
                                int servers, ToyModel* into) {
    const auto [first, last] = RowsOf(server, servers);
    LoadPlan plan;
    if (last > first) {
      const auto part = [f = first * 4, n = (last - first) * 4](std::vector<float>* all) {
        return absl::MakeSpan(*all).subspan(static_cast<size_t>(f), static_cast<size_t>(n));
      };
      plan.dense.push_back({W(first * 4), part(&into->w)});
      plan.dense.push_back({W(first * 4, "moment1"), part(&into->w_moment)});
      plan.dense.push_back({W(first * 4, "step", true), absl::MakeSpan(&into->step, 1)});
    }
    if (server == servers - 1) plan.dense.push_back({B(), absl::MakeSpan(into->b)});
    plan.tables.push_back(
        {.layout = Layout(),
         .wants = [server, servers](uint32_t shard) { return ShardServer(shard, 16, servers) == server; },
         .add =
             [into](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
               for (size_t i = 0; i < ids.size(); ++i) {
                 if (into->rows.count(ids[i]) != 0) return absl::InternalError("a row came twice");
                 into->rows[ids[i]] = {rows.begin() + 4 * i, rows.begin() + 4 * (i + 1)};
               }
               return absl::OkStatus();
             }});
    return LoadCheckpoint(path, manifest, plan);
  }

  static ToyModel Empty() {
    ToyModel m;
    m.w.assign(24, NAN);
    m.w_moment.assign(24, NAN);
    m.b.assign(3, NAN);
    m.step = NAN;
    return m;
  }

  friend bool operator==(const ToyModel& a, const ToyModel& b) {
    return a.w == b.w && a.w_moment == b.w_moment && a.b == b.b && a.step == b.step && a.rows == b.rows;
  }
};

}  // namespace weir

#endif  // WEIR_TESTS_FRAMEWORK_CHECKPOINT_FIXTURE_H_
