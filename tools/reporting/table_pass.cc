#include "tools/reporting/table_pass.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// Floats of rows that are worked on at a time: all columns find them in the first cache.
constexpr int64_t kTileFloats = 6144;
// Counts of which the exact sum is kept.
constexpr size_t kHottest = 100;

// Sums over the rows of one chunk. They are added up in the order of the chunks.
struct ChunkSums {
  std::vector<ColumnSums> columns;
  std::vector<double> squares;
  SixteenBitErrors errors;
  double counts = 0;
  std::vector<double> counts_below;
  VariableDigestSum digest;
};

// What a thread counts. Whole numbers, whose sums do not depend on the order.
struct Counted {
  std::vector<ColumnHistogram> histograms;  // by column
  std::vector<int64_t> rows_of_shard;
  std::vector<int64_t> rows_below;
  std::vector<int64_t> rows_older;
  int64_t zero_rows = 0;
  int64_t not_finite_rows = 0;
  int64_t never = 0;
  int64_t at_most_once = 0;
  std::vector<float> hottest;  // a heap whose first is the least
  // Buffers.
  std::vector<float> numbers;  // of a column
  std::vector<float> values;
  std::vector<float> norms;

  void Add(const Counted& other);
  void Hot(float count);
};

void AddTo(const std::vector<int64_t>& from, std::vector<int64_t>* to) {
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] += from[i];
}

void Counted::Add(const Counted& other) {
  for (size_t c = 0; c < histograms.size(); ++c) histograms[c].Add(other.histograms[c]);
  AddTo(other.rows_of_shard, &rows_of_shard);
  AddTo(other.rows_below, &rows_below);
  AddTo(other.rows_older, &rows_older);
  zero_rows += other.zero_rows;
  not_finite_rows += other.not_finite_rows;
  never += other.never;
  at_most_once += other.at_most_once;
  for (const float count : other.hottest) Hot(count);
}

void Counted::Hot(float count) {
  if (!std::isfinite(count)) return;
  if (hottest.size() == kHottest) {
    if (count <= hottest.front()) return;
    std::pop_heap(hottest.begin(), hottest.end(), std::greater<>());
    hottest.pop_back();
  }
  hottest.push_back(count);
  std::push_heap(hottest.begin(), hottest.end(), std::greater<>());
}

// Numbers of a column, which are not set to 0 first; none if the column is too long.
struct Kept {
  std::unique_ptr<float[]> numbers;
  size_t size = 0;
  absl::Span<const float> all() const { return {numbers.get(), size}; }
};

uint32_t WordOf(float x) { return std::bit_cast<uint32_t>(x); }

class Pass {
 public:
  Pass(const TableLayout& layout, absl::Span<const TableChunk> chunks, const TablePassOptions& options)
      : layout_(layout),
        chunks_(chunks),
        options_(options),
        width_(layout.width),
        floats_(int64_t{layout.width} + layout.state_width()),
        counted_shards_(layout.logical_shards > kMostLogicalShards ? 0 : static_cast<size_t>(layout.logical_shards)),
        rule_state_(floats_ - width_) {
    totals_.columns = ColumnsOfTable(layout);
    for (const TableChunk& chunk : chunks) {
      first_row_.push_back(totals_.rows);
      totals_.rows += chunk.description().row_count();
    }
    kept_.resize(totals_.columns.size());
    for (size_t c = 0; c < kept_.size(); ++c) {
      const TableColumn& column = totals_.columns[c];
      if (column.offset >= width_ && absl::StartsWith(column.name, "lifecycle.")) {
        rule_state_ = std::min(rule_state_, column.offset - width_);
      }
      // Compared without a product, which might not fit.
      if (totals_.rows <= options.exact_column / column.width) {
        kept_[c].size = static_cast<size_t>(totals_.rows * column.width);
        kept_[c].numbers.reset(new float[kept_[c].size]);
      }
    }
    ChooseCounts();
  }

  absl::Status ReadFirstSecond();
  absl::Status Run(ThreadPool* pool);
  TableTotals Totals(ThreadPool* pool);

 private:
  void ChooseCounts();
  absl::Status RunChunk(size_t chunk, Counted* counted, ChunkSums* sums);
  void AddTile(int64_t steps, int64_t first_row, absl::Span<const int64_t> ids, const float* rows, Counted* counted,
               ChunkSums* sums);
  void Gather(const TableColumn& column, int64_t steps, int64_t n, const float* rows, float* to) const;
  void AddCounts(absl::Span<const float> counts, Counted* counted, ChunkSums* sums) const;
  void AddValues(int64_t n, const float* rows, Counted* counted, ChunkSums* sums) const;
  void CountNeverTrained(int64_t n, const float* rows, Counted* counted) const;

  const TableLayout& layout_;
  const absl::Span<const TableChunk> chunks_;
  const TablePassOptions& options_;
  const int64_t width_;
  const int64_t floats_;            // of a row
  const size_t counted_shards_;     // logical shards whose rows are counted: all or none
  int64_t rule_state_;              // floats of state before the words of the lifecycle
  std::vector<int64_t> first_row_;  // of each chunk
  // Numbers of each column, in the order of rows. A task writes to the rows of its chunk alone.
  std::vector<Kept> kept_;
  uint32_t first_second_ = 0;    // constant while tasks run
  std::vector<ChunkSums> sums_;  // by chunk; a task writes to its own
  Counted counted_;              // of all threads, when the tasks have ended
  TableTotals totals_;
};

void Pass::ChooseCounts() {
  // The first of these that there is counts best. A segment's "step" counts as the row's.
  const auto find = [&](auto is) {
    for (size_t c = 0; c < totals_.columns.size(); ++c) {
      if (is(totals_.columns[c])) return static_cast<int>(c);
    }
    return -1;
  };
  const auto named = [&](std::string_view name) {
    return find([name](const TableColumn& column) { return column.name == name && column.width == 1; });
  };
  for (const char* const name : {"lifecycle.count", "steps", "step"}) {
    if (totals_.count_column < 0) totals_.count_column = named(name);
  }
  if (totals_.count_column < 0) {
    totals_.count_column = find([](const TableColumn& column) {
      return absl::EndsWith(column.name, ".step") && column.kind == TableColumn::kFloats && column.width == 1;
    });
  }
  totals_.counts_steps = totals_.count_column >= 0;
  if (totals_.count_column < 0) totals_.count_column = named("lifecycle.shows");
}

absl::Status Pass::ReadFirstSecond() {
  for (const TableColumn& column : totals_.columns) {
    if (column.kind != TableColumn::kSecond) continue;
    for (const TableChunk& chunk : chunks_) {
      if (chunk.description().row_count() == 0) continue;
      const absl::Status read =
          chunk.reader->ReadTable(chunk.entry, [&](absl::Span<const int64_t>, absl::Span<const float> rows) {
            first_second_ = WordOf(rows[static_cast<size_t>(column.offset)]);
            return absl::CancelledError("the first row is enough");
          });
      return absl::IsCancelled(read) ? absl::OkStatus() : read;
    }
  }
  return absl::OkStatus();
}

absl::Status Pass::Run(ThreadPool* pool) {
  sums_.resize(chunks_.size());
  Mutex mu;
  std::vector<std::unique_ptr<Counted>> idle;
  absl::Status failed;
  pool->ParallelFor(static_cast<int64_t>(chunks_.size()), [&](int64_t i) {
    std::unique_ptr<Counted> mine;
    {
      MutexLock lock(&mu);
      if (!failed.ok()) return;
      if (!idle.empty()) {
        mine = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (mine == nullptr) {
      mine = std::make_unique<Counted>();
      mine->histograms.resize(totals_.columns.size());
      mine->rows_of_shard.resize(counted_shards_);
      mine->rows_below.resize(options_.admit_after.size());
      mine->rows_older.resize(options_.ttl_steps.size());
    }
    const absl::Status status = RunChunk(static_cast<size_t>(i), mine.get(), &sums_[static_cast<size_t>(i)]);
    MutexLock lock(&mu);
    idle.push_back(std::move(mine));
    failed.Update(status);
  });
  RETURN_IF_ERROR(failed);
  for (size_t i = 0; i < idle.size(); ++i) {
    if (i == 0) {
      counted_ = std::move(*idle[0]);
    } else {
      counted_.Add(*idle[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status Pass::RunChunk(size_t chunk, Counted* counted, ChunkSums* sums) {
  const TableChunk& of = chunks_[chunk];
  sums->columns.resize(totals_.columns.size());
  sums->squares.resize(static_cast<size_t>(width_));
  sums->counts_below.resize(options_.admit_after.size());
  VariableDigester digester(layout_.table, layout_.logical_shards);
  const int64_t tile = std::max<int64_t>(1, kTileFloats / floats_);
  int64_t row = first_row_[chunk];
  RETURN_IF_ERROR(of.reader->ReadTable(of.entry, [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
    const auto count = static_cast<int64_t>(ids.size());
    for (int64_t begin = 0; begin < count; begin += tile) {
      const int64_t n = std::min(tile, count - begin);
      const float* const first = rows.data() + begin * floats_;
      for (int64_t r = 0; r < n; ++r) {
        const absl::Span<const float> each(first + r * floats_, static_cast<size_t>(floats_));
        const int64_t id = ids[static_cast<size_t>(begin + r)];
        digester.AddRow(id, each.first(static_cast<size_t>(width_)), each.subspan(static_cast<size_t>(width_)));
        if (counted_shards_ == 0) continue;
        ++counted->rows_of_shard[LogicalShard(id, static_cast<uint32_t>(layout_.logical_shards))];
      }
      AddTile(of.steps, row + begin, ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(n)), first, counted,
              sums);
    }
    row += count;
    return absl::OkStatus();
  }));
  sums->digest = digester.sum();
  return absl::OkStatus();
}

void Pass::AddTile(int64_t steps, int64_t first_row, absl::Span<const int64_t> ids, const float* rows, Counted* counted,
                   ChunkSums* sums) {
  const auto n = static_cast<int64_t>(ids.size());
  AddValues(n, rows, counted, sums);
  bool all_finite = true;
  for (size_t c = 0; c < totals_.columns.size(); ++c) {
    const TableColumn& column = totals_.columns[c];
    std::vector<float>& numbers = counted->numbers;
    numbers.resize(static_cast<size_t>(n * column.width));
    if (column.kind == TableColumn::kNorm) {
      std::copy(counted->norms.begin(), counted->norms.end(), numbers.begin());
    } else {
      Gather(column, steps, n, rows, numbers.data());
    }
    const ColumnSums its = ColumnSums::Of(numbers);
    all_finite &= its.not_finite == 0;
    sums->columns[c].Add(its);
    counted->histograms[c].Add(numbers);
    if (kept_[c].size > 0) std::copy(numbers.begin(), numbers.end(), kept_[c].numbers.get() + first_row * column.width);
    if (column.kind == TableColumn::kStep) {
      for (size_t i = 0; i < options_.ttl_steps.size(); ++i) {
        const auto least = static_cast<float>(options_.ttl_steps[i]);
        for (const float age : numbers) counted->rows_older[i] += age >= least ? 1 : 0;
      }
    }
    if (static_cast<int>(c) == totals_.count_column) AddCounts(numbers, counted, sums);
  }
  if (!totals_.counts_steps && options_.initial_state.has_value()) CountNeverTrained(n, rows, counted);
  if (all_finite) return;
  for (int64_t r = 0; r < n; ++r) {
    const float* const row = rows + r * floats_;
    const bool finite = std::all_of(row, row + width_ + rule_state_, [](float x) { return std::isfinite(x); });
    counted->not_finite_rows += finite ? 0 : 1;
  }
}

void Pass::Gather(const TableColumn& column, int64_t steps, int64_t n, const float* rows, float* to) const {
  const float* from = rows + column.offset;
  switch (column.kind) {
    case TableColumn::kNorm:
      break;
    case TableColumn::kFloats:
      for (int64_t r = 0; r < n; ++r, from += floats_) std::copy_n(from, column.width, to + r * column.width);
      break;
    case TableColumn::kCount:
      for (int64_t r = 0; r < n; ++r, from += floats_) to[r] = static_cast<float>(WordOf(*from));
      break;
    case TableColumn::kStep:
      for (int64_t r = 0; r < n; ++r, from += floats_) {
        // As LifecycleRules: steps wrap around, and one ahead of the present one was just used.
        const auto age = static_cast<int32_t>(static_cast<uint32_t>(steps - 1) - WordOf(*from));
        to[r] = static_cast<float>(std::max(age, 0));
      }
      break;
    case TableColumn::kSecond:
      for (int64_t r = 0; r < n; ++r, from += floats_) {
        to[r] = static_cast<float>(static_cast<int32_t>(WordOf(*from) - first_second_));
      }
      break;
  }
}

void Pass::AddValues(int64_t n, const float* rows, Counted* counted, ChunkSums* sums) const {
  std::vector<float>& values = counted->values;
  values.resize(static_cast<size_t>(n * width_));
  for (int64_t r = 0; r < n; ++r) std::copy_n(rows + r * floats_, width_, values.data() + r * width_);
  const SixteenBitErrors errors = RoundingErrorsOf(values);
  sums->errors.float16.Add(errors.float16);
  sums->errors.bfloat16.Add(errors.bfloat16);
  counted->norms.resize(static_cast<size_t>(n));
  AddSquares(values, absl::MakeSpan(sums->squares), absl::MakeSpan(counted->norms));
  // The norm of a row of floats other than 0 is not 0: their squares do not vanish in double.
  counted->zero_rows += std::count(counted->norms.begin(), counted->norms.end(), 0.0f);
}

void Pass::AddCounts(absl::Span<const float> counts, Counted* counted, ChunkSums* sums) const {
  const bool with_candidates = totals_.columns[static_cast<size_t>(totals_.count_column)].kind == TableColumn::kCount;
  const auto once = static_cast<float>(with_candidates ? options_.once : 1);
  for (const float count : counts) {
    if (!std::isfinite(count)) continue;
    sums->counts += static_cast<double>(count);
    counted->never += count == 0 ? 1 : 0;
    counted->at_most_once += count <= once ? 1 : 0;
    counted->Hot(count);
    for (size_t i = 0; i < options_.admit_after.size(); ++i) {
      const auto least = static_cast<float>(options_.admit_after[i]);
      counted->rows_below[i] += count < least ? 1 : 0;
      sums->counts_below[i] += static_cast<double>(std::min(count, least - 1));
    }
  }
}

void Pass::CountNeverTrained(int64_t n, const float* rows, Counted* counted) const {
  const std::vector<float>& initial = *options_.initial_state;
  for (int64_t r = 0; r < n; ++r) {
    const float* const state = rows + r * floats_ + width_;
    counted->never += std::equal(initial.begin(), initial.end(), state) ? 1 : 0;
  }
}

TableTotals Pass::Totals(ThreadPool* pool) {
  if (counted_.histograms.empty()) counted_.histograms.resize(totals_.columns.size());
  TableTotals& all = totals_;
  all.squares.resize(static_cast<size_t>(width_));
  all.counts_below.resize(options_.admit_after.size());
  std::vector<ColumnSums> columns(all.columns.size());
  for (const ChunkSums& chunk : sums_) {
    for (size_t c = 0; c < columns.size(); ++c) columns[c].Add(chunk.columns[c]);
    for (size_t c = 0; c < all.squares.size(); ++c) all.squares[c] += chunk.squares[c];
    for (size_t i = 0; i < all.counts_below.size(); ++i) all.counts_below[i] += chunk.counts_below[i];
    all.errors.float16.Add(chunk.errors.float16);
    all.errors.bfloat16.Add(chunk.errors.bfloat16);
    all.counts += chunk.counts;
    all.digest += chunk.digest;
  }
  all.figures.resize(columns.size());
  pool->ParallelFor(static_cast<int64_t>(columns.size()), [&](int64_t i) {
    const auto c = static_cast<size_t>(i);
    all.figures[c] = FiguresOf(columns[c], counted_.histograms[c], kept_[c].all());
  });
  all.zero_rows = counted_.zero_rows;
  all.not_finite_rows = counted_.not_finite_rows;
  all.never = counted_.never;
  all.at_most_once = counted_.at_most_once;
  all.rows_of_shard = std::move(counted_.rows_of_shard);
  all.rows_of_shard.resize(counted_shards_);
  all.rows_below = std::move(counted_.rows_below);
  all.rows_below.resize(options_.admit_after.size());
  all.rows_older = std::move(counted_.rows_older);
  all.rows_older.resize(options_.ttl_steps.size());
  std::sort(counted_.hottest.begin(), counted_.hottest.end(), std::greater<>());
  for (const float count : counted_.hottest) all.top_100 += static_cast<double>(count);
  if (!counted_.hottest.empty()) all.top_1 = static_cast<double>(counted_.hottest.front());
  if (all.count_column >= 0) {
    const auto c = static_cast<size_t>(all.count_column);
    all.counts_exact = kept_[c].size > 0 || all.rows == 0;
    all.top_percent = SumOfGreatest((columns[c].count + 99) / 100, counted_.histograms[c], kept_[c].all());
  }
  return std::move(totals_);
}

}  // namespace

std::vector<TableColumn> ColumnsOfTable(const TableLayout& layout) {
  std::vector<TableColumn> columns = {{.name = "norm", .kind = TableColumn::kNorm, .width = 1}};
  int64_t offset = layout.width;
  for (const auto& [name, width] : layout.states) {
    TableColumn::Kind kind = TableColumn::kFloats;
    if (width == 1 && name == "lifecycle.count") kind = TableColumn::kCount;
    if (width == 1 && name == "lifecycle.step") kind = TableColumn::kStep;
    if (width == 1 && name == "lifecycle.second") kind = TableColumn::kSecond;
    if (width > 0) columns.push_back({.name = name, .kind = kind, .offset = offset, .width = width});
    offset += width;
  }
  return columns;
}

absl::StatusOr<VariableDigestSum> DigestOf(const TableLayout& layout, absl::Span<const TableChunk> chunks,
                                           ThreadPool* pool) {
  const auto width = static_cast<size_t>(layout.width), floats = width + static_cast<size_t>(layout.state_width());
  std::vector<absl::StatusOr<VariableDigestSum>> sums(chunks.size(), VariableDigestSum());
  pool->ParallelFor(static_cast<int64_t>(chunks.size()), [&](int64_t i) {
    const TableChunk& chunk = chunks[static_cast<size_t>(i)];
    VariableDigester digester(layout.table, layout.logical_shards);
    const absl::Status status =
        chunk.reader->ReadTable(chunk.entry, [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
          for (size_t r = 0; r < ids.size(); ++r) {
            const absl::Span<const float> row = rows.subspan(r * floats, floats);
            digester.AddRow(ids[r], row.first(width), row.subspan(width));
          }
          return absl::OkStatus();
        });
    sums[static_cast<size_t>(i)] = status.ok() ? absl::StatusOr<VariableDigestSum>(digester.sum()) : status;
  });
  VariableDigestSum total;
  for (const absl::StatusOr<VariableDigestSum>& sum : sums) {
    RETURN_IF_ERROR(sum.status());
    total += *sum;
  }
  return total;
}

absl::StatusOr<TableTotals> PassOver(const TableLayout& layout, absl::Span<const TableChunk> chunks,
                                     const TablePassOptions& options, ThreadPool* pool) {
  Pass pass(layout, chunks, options);
  RETURN_IF_ERROR(pass.ReadFirstSecond());
  RETURN_IF_ERROR(pass.Run(pool));
  return pass.Totals(pool);
}

}  // namespace weir
