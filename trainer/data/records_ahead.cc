#include "trainer/data/records_ahead.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "trainer/files/block_reader.h"
#include "trainer/files/open_bytes.h"

namespace weir {
namespace {

const ProfileName kDecompress("decompress");
// Time that threads get to end; they check for it after every block.
constexpr absl::Duration kLeaveAhead = absl::Seconds(2);
// Returns whether lanes read the blocks themselves: a plain file needs no work beside that of the lanes, and a block
// that another thread has read would have to come from its cache.
bool ReadByLanes(const DataFile& file) { return !file.sequential(); }

// Blocks that lanes read ahead of the first one of them.
constexpr int64_t kAheadOfLanes = 4;
// Files that are read ahead of the lanes.
constexpr size_t kMostFollowing = 8;
// Of more than 256 and 64 lanes: bytes of a block, and of the window, for each.
constexpr size_t kBlockOfLane = size_t{1} << 10, kWindowOfLane = size_t{256} << 10;
// Position of a lane that is not in a pass.
constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();

struct Block : BlockOfRecords {
  int users = 0;  // lanes that read it
};

// One reading of a file. The lock of the State guards `busy` and the fields below it; the reader belongs to the thread
// that has set `busy`.
struct FilePass {
  FilePass(const DataFile& of, size_t block, const BlockReader::Begin& begin)
      : file(of), reader(std::make_unique<BlockReader>(of, block, begin)) {}

  const DataFile file;
  std::unique_ptr<BlockReader> reader;  // null once it has ended

  bool busy = false;
  std::deque<std::unique_ptr<Block>> blocks;
  int64_t first = 0;   // number of blocks.front() in the pass
  bool ended = false;  // no blocks follow
  absl::Status status;
  std::vector<int64_t> at;  // by lane: the block that it needs next
  int sources = 0;          // that read from it now
  bool expected = false;    // read ahead of the first lane
  bool forgotten = false;   // no other lane may join it
  bool filling = false;     // had fallen below half_ahead(), and is filled up to `ahead` blocks

  int64_t furthest() const {
    int64_t most = 0;
    for (const int64_t lane : at) most = std::max(most, lane == kNowhere ? 0 : lane);
    return most;
  }
  int64_t behind() const { return first + static_cast<int64_t>(blocks.size()); }
};

}  // namespace

class RecordsAhead::State {
 public:
  explicit State(const Options& options) : options_(options) {}

  void StartThreads(const std::shared_ptr<State>& self);
  void Close();
  void Cancel();
  int threads() const { return options_.threads; }
  int64_t passes() const {
    MutexLock lock(&mu_);
    return begun_;
  }

  // Begins the pass of a file that all lanes read next, unless it has begun.
  void Expect(const DataFile& file, const Reader& reader);
  // Returns the pass for a lane that needs block `next` of a file.
  std::shared_ptr<FilePass> Join(const DataFile& file, const Reader& reader, int64_t next)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Leave(const Reader& reader, FilePass* pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns block `next` for a lane, which gives back the one before (or null); nullptr at the end of the file. Joins
  // and leaves passes. Cancelled after Cancel, else the error of the file.
  absl::StatusOr<Block*> Fetch(const DataFile& file, const Reader& reader, int64_t next, Block* before,
                               std::shared_ptr<FilePass>* pass);
  void GiveUp(const Reader& reader, Block* block, FilePass* pass);

 private:
  // Passes of one file from one place on in one round, in which every lane reads it once.
  using Round = std::vector<std::shared_ptr<FilePass>>;
  struct RoundKey {
    int64_t file = 0;
    int64_t round = 0;
    BlockReader::Begin begin = {};
    auto operator<=>(const RoundKey&) const = default;
  };

  void Work(int thread);
  std::shared_ptr<FilePass> Begin(const DataFile& file, const BlockReader::Begin& at)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reads the next block of a pass that nobody reads. Lets go of the lock meanwhile.
  void ReadNext(FilePass* pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns a pass that wants another block, null if there is none: the pass of the thread's last block, up to
  // half_ahead() in a row, else the one whose lanes will wait first.
  std::shared_ptr<FilePass> PickPass(const std::shared_ptr<FilePass>& last, int64_t in_a_row)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Wanted(const FilePass& pass) const;
  // Drops the first blocks, as long as no lane needs them.
  void Trim(FilePass* pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropFirst(FilePass* pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Release(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetRounds(int64_t file, int64_t before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  bool HasRoom(const FilePass& pass) const { return static_cast<int64_t>(pass.blocks.size()) < options_.window; }
  int64_t half_ahead() const { return (options_.ahead + 1) / 2; }

  const Options options_;
  mutable Mutex mu_;
  CondVar work_;   // a pass may want a block
  CondVar ready_;  // a block is there, or a thread has ended
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::shared_ptr<FilePass>> passes_ ABSL_GUARDED_BY(mu_);
  std::map<RoundKey, Round> rounds_ ABSL_GUARDED_BY(mu_);           // shared files only
  std::vector<std::unique_ptr<Block>> lent_ ABSL_GUARDED_BY(mu_);   // dropped by their pass, still read
  std::vector<std::unique_ptr<Block>> spare_ ABSL_GUARDED_BY(mu_);  // memory for blocks
  int64_t begun_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> left_ ABSL_GUARDED_BY(mu_);  // [i]: thread i has nothing more to do
};

void RecordsAhead::State::StartThreads(const std::shared_ptr<State>& self) {
  MutexLock lock(&mu_);
  if (!threads_.empty() || cancelled_) return;
  left_.assign(static_cast<size_t>(options_.threads), false);
  for (int i = 0; i < options_.threads; ++i) {
    threads_.push_back(StartThread(absl::StrCat("weir-unpack-", i), [self, i] { self->Work(i); }));
  }
}

void RecordsAhead::State::Cancel() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  work_.SignalAll();
  ready_.SignalAll();
}

void RecordsAhead::State::Close() {
  Cancel();
  const absl::Time deadline = Clock::Real()->Now() + kLeaveAhead;
  std::vector<bool> left;
  std::vector<std::thread> threads;
  std::string stuck;
  {
    MutexLock lock(&mu_);
    while (std::find(left_.begin(), left_.end(), false) != left_.end() && Clock::Real()->Now() < deadline) {
      ready_.WaitWithTimeout(&mu_, deadline - Clock::Real()->Now());
    }
    left = left_;
    threads = std::move(threads_);
    for (const std::shared_ptr<FilePass>& pass : passes_) {
      if (pass->busy) absl::StrAppend(&stuck, stuck.empty() ? "" : ", ", pass->file.name);
    }
  }
  for (size_t i = 0; i < threads.size(); ++i) {
    if (left[i]) {
      threads[i].join();
    } else {
      threads[i].detach();
    }
  }
  if (std::find(left.begin(), left.end(), false) != left.end()) {
    LOG(WARNING) << "decompressing has not ended within " << absl::FormatDuration(kLeaveAhead)
                 << " and is not waited for any longer: " << stuck;
  }
}

void RecordsAhead::State::Work(int thread) {
  std::shared_ptr<FilePass> pass;
  int64_t in_a_row = 0;
  mu_.Lock();
  while (!cancelled_) {
    std::shared_ptr<FilePass> next = PickPass(pass, in_a_row);
    in_a_row = next == pass ? in_a_row + 1 : 1;
    pass = std::move(next);
    if (pass == nullptr) {
      work_.Wait(&mu_);
      continue;
    }
    ReadNext(pass.get());
  }
  left_[static_cast<size_t>(thread)] = true;
  ready_.SignalAll();
  mu_.Unlock();
}

void RecordsAhead::State::ReadNext(FilePass* pass) {
  pass->busy = true;
  if (!HasRoom(*pass)) DropFirst(pass);
  std::unique_ptr<Block> block;
  if (spare_.empty()) {
    block = std::make_unique<Block>();
  } else {
    block = std::move(spare_.back());
    spare_.pop_back();
  }
  mu_.Unlock();
  absl::StatusOr<bool> more = false;
  if (ReadByLanes(pass->file)) {
    more = pass->reader->Read(block.get());
  } else {
    ProfileSpan span(Profiler::CurrentStep(), ProfileKind::kRead, kDecompress);
    more = pass->reader->Read(block.get());
  }
  mu_.Lock();
  pass->busy = false;
  if (!block->ends.empty()) {
    pass->blocks.push_back(std::move(block));
  } else {
    spare_.push_back(std::move(block));
  }
  if (!more.ok() || !*more) {
    pass->ended = true;
    pass->status = more.status();
    pass->reader = nullptr;
  }
  pass->filling = pass->behind() < pass->furthest() + options_.ahead;
  Sweep();
  ready_.SignalAll();
}

bool RecordsAhead::State::Wanted(const FilePass& pass) const {
  if (pass.busy || pass.ended || (pass.sources == 0 && !pass.expected)) return false;
  // With a full window only a lane that has read everything may have another block.
  if (!HasRoom(pass)) return pass.furthest() >= pass.behind();
  // A file that lanes come to later is what there is to do while one thread decompresses the present one.
  if (pass.expected) return pass.behind() < options_.window / 2;
  return pass.behind() < pass.furthest() + (pass.filling ? options_.ahead : half_ahead());
}

std::shared_ptr<FilePass> RecordsAhead::State::PickPass(const std::shared_ptr<FilePass>& last, int64_t in_a_row) {
  std::shared_ptr<FilePass> picked;
  int64_t least = std::numeric_limits<int64_t>::max();  // blocks that the lane furthest ahead still has
  bool begins = false;
  for (const std::shared_ptr<FilePass>& pass : passes_) {
    if (ReadByLanes(pass->file) || !Wanted(*pass)) continue;
    begins = begins || (pass->behind() == 0 && !pass->expected);
    // A file that no lane has come to waits for those that lanes read.
    const int64_t ahead = pass->behind() - pass->furthest() + (pass->expected ? options_.ahead : 0);
    if (ahead >= least) continue;
    least = ahead;
    picked = pass;
  }
  // The decompressor's window, megabytes for zstd, stays in the cache as long as nothing else is decompressed. Only the
  // first block of a file cannot wait, since a batch takes examples from every lane.
  const bool stays =
      last != nullptr && !begins && in_a_row < half_ahead() && Wanted(*last) && (!last->expected || picked->expected);
  return stays ? last : picked;
}

std::shared_ptr<FilePass> RecordsAhead::State::Join(const DataFile& file, const Reader& reader, int64_t next) {
  const size_t lane = static_cast<size_t>(reader.lane);
  std::shared_ptr<FilePass> pass;
  Round* const round = reader.shared ? &rounds_[{reader.file, reader.round, reader.begin}] : nullptr;
  for (size_t i = 0; round != nullptr && i < round->size(); ++i) {
    const std::shared_ptr<FilePass>& other = (*round)[i];
    if (!other->forgotten && other->first <= next) pass = other;
  }
  if (pass == nullptr) {
    pass = Begin(file, reader.begin);
    if (round != nullptr) {
      // In the first pass all lanes begin at block 0. A later one takes the lanes that have fallen out of earlier ones.
      if (round->empty()) std::fill(pass->at.begin(), pass->at.end(), 0);
      for (const std::shared_ptr<FilePass>& other : *round) {
        for (size_t i = 0; i < other->at.size(); ++i) {
          if (other->at[i] < other->first) std::swap(pass->at[i], other->at[i]);
        }
      }
      round->push_back(pass);
      ForgetRounds(reader.file, reader.round - 1);
    }
  }
  for (size_t i = 0; round != nullptr && i < round->size(); ++i) (*round)[i]->at[lane] = kNowhere;
  pass->at[lane] = next;
  pass->expected = false;
  ++pass->sources;
  return pass;
}

std::shared_ptr<FilePass> RecordsAhead::State::Begin(const DataFile& file, const BlockReader::Begin& at) {
  ++begun_;
  auto pass = std::make_shared<FilePass>(file, options_.block, at);
  pass->at.assign(static_cast<size_t>(options_.lanes), kNowhere);
  passes_.push_back(pass);
  return pass;
}

void RecordsAhead::State::Expect(const DataFile& file, const Reader& reader) {
  MutexLock lock(&mu_);
  Round& round = rounds_[{reader.file, reader.round, reader.begin}];
  if (!round.empty() || cancelled_) return;
  const std::shared_ptr<FilePass> pass = Begin(file, reader.begin);
  std::fill(pass->at.begin(), pass->at.end(), 0);
  pass->expected = true;
  pass->filling = true;
  round.push_back(pass);
  ForgetRounds(reader.file, reader.round - 1);
  work_.Signal();
}

void RecordsAhead::State::ForgetRounds(int64_t file, int64_t before) {
  auto it = rounds_.lower_bound({file, std::numeric_limits<int64_t>::min()});
  while (it != rounds_.end() && it->first.file == file && it->first.round < before) {
    for (const std::shared_ptr<FilePass>& pass : it->second) pass->forgotten = true;
    it = rounds_.erase(it);
  }
  Sweep();
}

void RecordsAhead::State::Leave(const Reader& reader, FilePass* pass) {
  pass->at[static_cast<size_t>(reader.lane)] = kNowhere;
  --pass->sources;
  // The number of lanes that begin in the middle of a file is unknown, so forget a pass that began there; a lane that
  // comes now begins its own.
  if (pass->sources == 0 && reader.begin.at > 0) pass->forgotten = true;
  Trim(pass);
}

void RecordsAhead::State::Release(Block* block) {
  if (--block->users > 0) return;
  const auto lent =
      std::find_if(lent_.begin(), lent_.end(), [block](const auto& other) { return other.get() == block; });
  if (lent == lent_.end()) return;
  spare_.push_back(std::move(*lent));
  lent_.erase(lent);
}

void RecordsAhead::State::DropFirst(FilePass* pass) {
  std::unique_ptr<Block> block = std::move(pass->blocks.front());
  pass->blocks.pop_front();
  ++pass->first;
  (block->users > 0 ? lent_ : spare_).push_back(std::move(block));
}

void RecordsAhead::State::Trim(FilePass* pass) {
  const auto needed = [&] {
    return std::any_of(pass->at.begin(), pass->at.end(), [&](int64_t at) { return at == pass->first; });
  };
  while (!pass->blocks.empty() && !needed()) DropFirst(pass);
}

void RecordsAhead::State::Sweep() {
  const auto over = [&](const std::shared_ptr<FilePass>& pass) {
    mu_.AssertHeld();
    if (pass->sources > 0 || pass->busy) return false;
    // A lane that has yet to come keeps the pass alive, unless no lane can find it any more.
    const bool comes =
        std::any_of(pass->at.begin(), pass->at.end(), [&](int64_t at) { return at != kNowhere && at >= pass->first; });
    if (comes && !pass->forgotten) return false;
    pass->forgotten = true;
    pass->reader = nullptr;
    while (!pass->blocks.empty()) DropFirst(pass.get());
    return true;
  };
  passes_.erase(std::remove_if(passes_.begin(), passes_.end(), over), passes_.end());
}

absl::StatusOr<Block*> RecordsAhead::State::Fetch(const DataFile& file, const Reader& reader, int64_t next,
                                                  Block* before, std::shared_ptr<FilePass>* pass) {
  MutexLock lock(&mu_);
  if (before != nullptr) Release(before);
  while (!cancelled_) {
    if (*pass != nullptr && next < (*pass)->first) {
      --(*pass)->sources;  // `at` stays: it shows that the lane has fallen out
      *pass = nullptr;
    }
    if (*pass == nullptr) {
      *pass = Join(file, reader, next);
      Sweep();
    }
    FilePass& from = **pass;
    int64_t& at = from.at[static_cast<size_t>(reader.lane)];
    at = next;
    Trim(&from);
    const bool by_lanes = ReadByLanes(from.file);
    // So that no lane waits for a block that another one reads, a few are read ahead, by whoever comes.
    const bool few = from.behind() <= std::max(next, from.furthest()) + kAheadOfLanes;
    // A lane that has come to a later pass may want a block behind those that are read: it reads on with a full window,
    // too, since the lane that the first block is kept for may never come.
    if (by_lanes && few && !from.busy && !from.ended && (next >= from.behind() || HasRoom(from))) {
      ReadNext(&from);
      continue;
    }
    if (next < from.behind()) {
      Block* const block = from.blocks[static_cast<size_t>(next - from.first)].get();
      ++block->users;
      ++at;
      Trim(&from);
      if (!by_lanes && Wanted(from)) work_.Signal();
      return block;
    }
    if (from.ended) {
      RETURN_IF_ERROR(from.status);
      return nullptr;
    }
    if (!by_lanes) work_.Signal();
    // No deadline here: the session that waits for batches has one, and Cancel ends this wait.
    ready_.Wait(&mu_);
  }
  return absl::CancelledError("reading was cancelled");
}

void RecordsAhead::State::GiveUp(const Reader& reader, Block* block, FilePass* pass) {
  MutexLock lock(&mu_);
  if (block != nullptr) Release(block);
  if (pass != nullptr) Leave(reader, pass);
  Sweep();
}

class RecordsAhead::Source : public RecordSource {
 public:
  Source(std::shared_ptr<State> state, const DataFile& file, const Reader& reader)
      : state_(std::move(state)), file_(file), reader_(reader) {}
  ~Source() override { state_->GiveUp(reader_, block_, pass_.get()); }

  bool Next(std::string_view* record, int64_t* offset) override {
    if (!Have()) return false;
    absl::Status given = BlockReader::Give(file_, *block_, record_++, record, offset);
    if (given.ok()) return true;
    status_ = std::move(given);
    ended_ = true;
    return false;
  }

  // Records of other lanes lie between those of a lane, so that the processor does not guess where it reads next; and
  // another thread may have read the block.
  void Prefetch(int64_t records) override {
    const size_t i = record_ + static_cast<size_t>(records);
    if (block_ == nullptr || i >= block_->ends.size()) return;
    __builtin_prefetch(block_->ends.data() + i + records);
    constexpr size_t kLine = 64, kMost = 16 * kLine;  // bytes
    const size_t begin = block_->ends[i - 1], end = std::min<size_t>(block_->ends[i], begin + kMost);
    for (size_t at = begin; at < end + kLine; at += kLine) __builtin_prefetch(block_->bytes.data() + at);
  }

  int64_t Skip(int64_t records) override {
    int64_t passed = 0;
    while (passed < records && Have()) {
      const size_t some = std::min(static_cast<size_t>(records - passed), block_->ends.size() - record_);
      record_ += some;
      passed += static_cast<int64_t>(some);
    }
    return passed;
  }

 private:
  // Returns true if there is a record that has not been given; fetches the next block if necessary.
  bool Have() {
    if (ended_) return false;
    if (block_ != nullptr && record_ < block_->ends.size()) return true;
    absl::StatusOr<Block*> block = state_->Fetch(file_, reader_, next_, std::exchange(block_, nullptr), &pass_);
    record_ = 0;
    if (block.ok()) {
      block_ = *block;
    } else {
      status_ = block.status();
    }
    ended_ = block_ == nullptr;
    ++next_;
    return !ended_;
  }

  const std::shared_ptr<State> state_;
  const DataFile& file_;
  const Reader reader_;
  std::shared_ptr<FilePass> pass_;
  int64_t next_ = 0;  // block
  Block* block_ = nullptr;
  size_t record_ = 0;  // next of the block
  bool ended_ = false;
};

bool RecordsAhead::IsFor(const DataFile& file, const Segment& segment) {
  if (!BlockReader::Reads(file)) return false;
  // Each stream passes the records of the others in a small file by itself.
  return file.sequential() || (segment.drawn && segment.modulus > 1 && file.bytes > int64_t{ByteSource::kBlock});
}

std::unique_ptr<RecordsAhead> RecordsAhead::For(const DataSpec& spec, const DataSet& data, bool follows,
                                                LaneRange streams, int threads) {
  if (streams.count == 0) return nullptr;
  for (int stream = streams.begin; stream < streams.begin + streams.count && !follows; ++stream) {
    for (const Segment& segment : data.Stream(stream, spec.streams(), spec.stream_scheme)) {
      follows |= IsFor(data.files()[static_cast<size_t>(segment.file)], segment);
    }
  }
  if (!follows) return nullptr;
  Options options{.lanes = streams.count, .threads = threads};
  // The lanes of a batch are read one after the other, so the first is ahead of the last by all of the batch. Each
  // looks at every block, which larger blocks make less often.
  const auto lanes = static_cast<size_t>(streams.count);
  options.block = std::max(options.block, lanes * kBlockOfLane);
  options.window = std::max(options.window, static_cast<int64_t>(lanes * kWindowOfLane / options.block));
  return std::make_unique<RecordsAhead>(options);
}

RecordsAhead::RecordsAhead(const Options& options) : state_(std::make_shared<State>(options)) {
  CHECK(options.lanes > 0 && options.threads > 0 && options.block > 0 && options.ahead > 0 &&
        options.window >= options.ahead);
}

RecordsAhead::~RecordsAhead() { state_->Close(); }

absl::StatusOr<std::unique_ptr<RecordSource>> RecordsAhead::Open(const DataFile& file, const Reader& reader,
                                                                 absl::Span<const Following> following) {
  CHECK(BlockReader::Reads(file) && reader.lane >= 0);
  // Reports errors of opening the file here, like other sources do.
  RETURN_IF_ERROR(OpenBytes(file, 0).status());
  if (!ReadByLanes(file)) state_->StartThreads(state_);
  if (reader.shared) {
    following = following.first(std::min({following.size(), static_cast<size_t>(state_->threads()), kMostFollowing}));
    for (const Following& next : following) {
      if (ReadByLanes(*next.of)) continue;
      state_->StartThreads(state_);
      state_->Expect(*next.of, {.file = next.file, .lane = reader.lane, .round = reader.round, .shared = true});
    }
  }
  return std::make_unique<Source>(state_, file, reader);
}

void RecordsAhead::Cancel() { state_->Cancel(); }

int64_t RecordsAhead::passes() const { return state_->passes(); }

}  // namespace weir
