#include "pserver/client/client_impl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/payload_reader.h"
#include "framework/wire/transfer.h"
#include "glog/logging.h"

namespace weir {

namespace {

const ProfileName kRowsName("rows"), kBlocksName("blocks"), kRowsPull("Pull rows"), kBlocksPull("Pull blocks"),
    kServeName("answers");

}  // namespace

absl::Status ClientImpl::BeginStep(int64_t step, bool read_only) {
  RETURN_IF_ERROR(JobStatus());
  read_only_ = read_only;
  rows_.step = read_only ? rows_.step : step;
  rows_.read_only = read_only;
  wanted_.clear();
  step_samples_ = 0;
  if (read_only) return absl::OkStatus();
  step_ = step;
  {
    MutexLock lock(&shared_->mu);
    shared_->step = step;
  }
  if (in_turn_) version_wanted_ = step;
  for (const auto& builder : builders_) builder->Begin();
  MutexLock lock(&push_mu_);
  pushes_.clear();
  return absl::OkStatus();
}

absl::Status ClientImpl::AheadChannel::BeginStep(int64_t step, bool read_only) {
  CHECK(!client_.options_.plan.sync()) << "a step of sync sees its own version";
  rows.step = step;
  rows.read_only = read_only;
  return client_.JobStatus();
}

void ClientImpl::NeedAhead(bool needed) {
  MutexLock lock(&shared_->mu);
  shared_->ahead_needed = needed;
}

void ClientImpl::CancelAhead() {
  MutexLock lock(&shared_->mu);
  shared_->ahead_cancelled = true;
  shared_->changed.SignalAll();
}

absl::StatusOr<bool> ClientImpl::OpenPull(int server, bool ahead, const Slices& answer, v1::PullReply* header,
                                          Slices* payload) {
  ASSIGN_OR_RETURN(Frame frame, DecodeFrame(answer));
  if (!header->ParseFromString(frame.header)) return absl::DataLossError("no PullReply");
  if (!header->ready()) {
    MutexLock lock(&shared_->mu);
    Shared::Waiting& waiting = ahead ? shared_->waiting_ahead : shared_->waiting;
    waiting.on = absl::StrCat("server ", server, ": ", header->waiting_for());
    waiting.held_by = absl::StrCat("server ", server, " waits for ", header->waiting_for());
    return false;
  }
  *payload = std::move(frame.payload);
  return true;
}

CallPtr ClientImpl::NewPull(int server, bool ahead, const v1::PullRequest& request, const Slices& ids,
                            std::function<absl::Status(const v1::PullReply&, PayloadReader*)> take) {
  const absl::Time start = options_.clock->Now();
  const CallPtr call = NewCall(server, Method::kPull, EncodeFrame(request.SerializeAsString(), ids),
                               [this, server, ahead, start, version = request.version(),
                                take = std::move(take)](const Slices& answer) -> absl::StatusOr<bool> {
                                 v1::PullReply header;
                                 Slices payload;
                                 ASSIGN_OR_RETURN(const bool ready, OpenPull(server, ahead, answer, &header, &payload));
                                 if (ready) {
                                   const bool check = options_.transport->checks_payloads();
                                   PayloadReader reader(payload, check);
                                   RETURN_IF_ERROR(take(header, &reader));
                                   if (!check || header.checksum() == reader.Checksum()) return true;
                                   return absl::DataLossError("the payload's checksum does not match");
                                 }
                                 const absl::Duration waited = options_.clock->Now() - start;
                                 if (waited >= slow_warning_) {
                                   LOG(WARNING) << Self() << ": waits for version " << version << " of "
                                                << options_.transport->Describe(server) << ", which waits for "
                                                << header.waiting_for() << ", for " << SecondsText(waited);
                                 }
                                 return false;
                               });
  call->profiled_as = ids.empty() ? kBlocksPull : kRowsPull;
  return call;
}

WireBuffer ClientImpl::ReadDecoded(PayloadReader* reader, v1::WireFormat format, size_t n, size_t group) {
  const size_t bytes = EncodedBytes(format, n, group);
  const WireBuffer sent = buffers_.Get(bytes), values = buffers_.Get(n * sizeof(float));
  reader->Read(sent.data, bytes);
  Decode(format, sent.data, n, group, reinterpret_cast<float*>(values.data));
  return values;
}

void ClientImpl::OrderRows(const TableRows& table, int64_t rows, std::vector<uint32_t>* order) {
  const std::vector<int64_t>& ids = *table.ids;
  const size_t width = static_cast<size_t>(table.width);
  order->clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < rows) {
      order->push_back(static_cast<uint32_t>(i));
    } else {
      std::fill_n(table.rows + i * width, width, 0.0f);
    }
  }
  std::sort(order->begin(), order->end(), [&](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
}

absl::Status ClientImpl::ServeInParallel(absl::Span<const CallPtr> calls) {
  const ProfileSpan span(ProfiledStep::current(), ProfileKind::kThreads, kServeName);
  std::vector<absl::Status> looked(calls.size());
  options_.pool->ParallelFor(static_cast<int64_t>(calls.size()), [&](int64_t i) {
    const CallPtr& call = calls[static_cast<size_t>(i)];
    Issue(call);
    // What is to be asked again is left to Wait.
    bool issue = false;
    looked[static_cast<size_t>(i)] = Look(call, &issue);
  });
  for (const absl::Status& status : looked) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<IdOrder*>> ClientImpl::OrderTables(RowPulls* pulls, absl::Span<const TableRows> tables) {
  const int64_t call = ++pulls->calls;
  std::vector<StepIds*> all;
  std::vector<size_t> first;  // of those that are asked for the same ids, and fetched parameters
  const auto shards_of = [&](size_t i) {
    return static_cast<uint32_t>(tables_.find(tables[i].table)->second->logical_shards());
  };
  for (size_t i = 0; i < tables.size(); ++i) {
    const TableRows& table = tables[i];
    if (fetched_.contains(table.table)) {
      pulls->fetched[table.table];
      all.push_back(nullptr);
      first.push_back(i);
      continue;
    }
    if (!tables_.contains(table.table)) {
      return absl::InvalidArgumentError(absl::StrCat("pull of table ", table.table, ", which the plan does not have"));
    }
    StepIds& ids = pulls->ids[table.table];
    ids.ids = *table.ids;
    ids.step = pulls->read_only ? -1 : pulls->step;
    ids.call = call;
    ids.same_as = nullptr;
    ids.unions.Reset();
    for (const size_t j : first) {
      if (all[j] == nullptr || all[j] == &ids || shards_of(j) != shards_of(i)) continue;
      if (tables[j].ids != table.ids && *tables[j].ids != *table.ids) continue;
      ids.same_as = all[j];
      break;
    }
    if (ids.same_as == nullptr) first.push_back(i);
    all.push_back(&ids);
  }
  // One set of ids is put in order by all threads. What is asked for first is on its way while the rest is sorted,
  // unless answers come from inside the call.
  const bool one = first.size() == 1 && all[first[0]] != nullptr;
  const bool at_once =
      one && !options_.transport->answers_inside() &&
      std::all_of(tables.begin(), tables.end(), [](const TableRows& table) { return table.there == nullptr; });
  options_.pool->ParallelFor(static_cast<int64_t>(first.size()), [&](int64_t k) {
    const size_t i = first[static_cast<size_t>(k)];
    const TableRows& table = tables[i];
    if (all[i] == nullptr) {
      return OrderRows(table, fetched_.find(table.table)->second.rows, &pulls->fetched.find(table.table)->second);
    }
    all[i]->order.Start(*table.ids, shards_of(i), servers());
    if (!one) all[i]->order.Finish();
  });
  if (one && !at_once) all[first[0]]->order.Finish(options_.pool);
  std::vector<IdOrder*> orders(tables.size(), nullptr);
  for (size_t i = 0; i < tables.size(); ++i) {
    if (all[i] == nullptr) continue;
    orders[i] = all[i]->same_as == nullptr ? &all[i]->order : &all[i]->same_as->order;
    if (tables[i].there == nullptr) continue;
    all[i]->asked.Select(*orders[i], tables[i].there);
    orders[i] = &all[i]->asked;
  }
  return orders;
}

absl::Status ClientImpl::PullRows(RowPulls* pulls, absl::Span<const TableRows> tables) {
  // What one call asks for: positions [begin, end) of the order of some tables, or of blocks of fetched parameters.
  struct Piece {
    const TableRows* table;
    IdOrder* order;                        // of a table
    const std::vector<uint32_t>* fetched;  // else
    const FetchedParameter::Block* block;
    size_t begin, end;
    v1::WireFormat format = v1::WIRE_FLOAT32;
    // In the answer, as sent.
    size_t bytes() const {
      const size_t width = static_cast<size_t>(table->width);
      return EncodedBytes(format, (end - begin) * width, width);
    }
    // Of [begin, end), in the table's ids.
    const uint32_t* positions() const { return (order != nullptr ? order->positions() : fetched->data()) + begin; }
  };
  struct Request {
    int server;
    std::vector<Piece> pieces;
    size_t bytes = 0;  // of rows
  };
  const bool inside = options_.transport->answers_inside();
  const size_t most_bytes = inside ? kBytesPerCallInside : kRowBytesPerCall;
  ASSIGN_OR_RETURN(const std::vector<IdOrder*> orders, OrderTables(pulls, tables));

  std::vector<Request> requests;
  for (int s = 0; s < servers(); ++s) {
    Request request{s, {}};
    // Cuts positions [pieces[0].begin, pieces[0].end), which are those of all these pieces, into calls of equal size.
    const auto ask_for = [&](std::vector<Piece> pieces) {
      size_t row_bytes = 0;
      for (const Piece& piece : pieces) row_bytes += static_cast<size_t>(piece.table->width) * sizeof(float);
      const size_t last = pieces[0].end, rows_per_call = RowsPerCall(last - pieces[0].begin, row_bytes, most_bytes);
      for (size_t begin = pieces[0].begin; begin < last; begin += rows_per_call) {
        const size_t end = std::min(last, begin + rows_per_call), bytes = (end - begin) * row_bytes;
        if (request.bytes > 0 && request.bytes + bytes > most_bytes) {
          requests.push_back(std::move(request));
          request = {s, {}};
        }
        for (Piece& piece : pieces) {
          piece.begin = begin;
          piece.end = end;
          request.pieces.push_back(piece);
        }
        request.bytes += AlignUp(bytes);
      }
    };
    for (size_t i = 0; i < tables.size(); ++i) {
      if (orders[i] != nullptr) {
        const auto piece_of = [&](size_t table) -> Piece {
          IdOrder& order = *orders[table];
          const v1::WireFormat format = tables_.find(tables[table].table)->second->wire().pull();
          return {&tables[table], &order, nullptr, nullptr, order.begin(s), order.begin(s + 1), format};
        };
        // Tables that are asked for the same ids are asked for together.
        std::vector<Piece> pieces = {piece_of(i)};
        if (std::find(orders.begin(), orders.begin() + static_cast<ptrdiff_t>(i), orders[i]) !=
            orders.begin() + static_cast<ptrdiff_t>(i)) {
          continue;
        }
        for (size_t j = i + 1; j < tables.size(); ++j) {
          if (orders[j] == orders[i]) pieces.push_back(piece_of(j));
        }
        ask_for(std::move(pieces));
        continue;
      }
      const FetchedParameter& parameter = fetched_.find(tables[i].table)->second;
      const std::vector<int64_t>& ids = *tables[i].ids;
      const std::vector<uint32_t>& positions = pulls->fetched.find(tables[i].table)->second;
      const auto place_of = [&](int64_t row) {
        return static_cast<size_t>(std::lower_bound(positions.begin(), positions.end(), row,
                                                    [&](uint32_t position, int64_t r) { return ids[position] < r; }) -
                                   positions.begin());
      };
      for (const FetchedParameter::Block& block : parameter.blocks) {
        if (block.server != s) continue;
        ask_for({{&tables[i], nullptr, &positions, &block, place_of(block.begin), place_of(block.end),
                  options_.plan.wire().pull()}});
      }
    }
    if (!request.pieces.empty()) requests.push_back(std::move(request));
  }

  std::vector<CallPtr> calls;
  for (Request& request : requests) {
    v1::PullRequest header;
    *header.mutable_caller() = CallerFor(request.server);
    header.set_version(in_turn_ && !pulls->read_only ? pulls->step : 0);
    header.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
    // Pieces that want the same ids name the same bytes of the payload.
    const auto repeats = [&](size_t i) {
      const Piece* const piece = &request.pieces[i];
      return i > 0 && piece->order != nullptr && piece->order == piece[-1].order && piece->begin == piece[-1].begin;
    };
    size_t id_bytes = 0, offset = 0;
    for (size_t i = 0; i < request.pieces.size(); ++i) {
      const Piece& piece = request.pieces[i];
      if (!repeats(i)) {
        offset = id_bytes;
        id_bytes += AlignUp((piece.end - piece.begin) * sizeof(int64_t));
      }
      v1::PullItem* const item = header.add_items();
      item->set_name(piece.block == nullptr ? piece.table->table : piece.block->name);
      item->set_count(static_cast<int64_t>(piece.end - piece.begin));
      item->set_width(piece.table->width);
      item->set_offset(static_cast<int64_t>(offset));
      if (piece.format != v1::WIRE_FLOAT32) item->set_format(piece.format);
      shared_->rows_pulled.fetch_add(static_cast<int64_t>(piece.end - piece.begin), std::memory_order_relaxed);
    }
    const WireBuffer buffer = buffers_.Get(id_bytes);
    char* at = buffer.data;
    for (size_t i = 0; i < request.pieces.size(); ++i) {
      if (repeats(i)) continue;
      const Piece& piece = request.pieces[i];
      int64_t* const ids = reinterpret_cast<int64_t*>(at);
      const std::vector<int64_t>& from = *piece.table->ids;
      const int64_t first = piece.block == nullptr ? 0 : piece.block->begin;
      if (piece.order != nullptr && piece.table->there == nullptr) piece.order->Finish(piece.begin, piece.end);
      const uint32_t* const positions = piece.positions();
      for (size_t k = 0; k < piece.end - piece.begin; ++k) ids[k] = from[positions[k]] - first;
      const size_t bytes = (piece.end - piece.begin) * sizeof(int64_t);
      std::memset(at + bytes, 0, AlignUp(bytes) - bytes);
      at += AlignUp(bytes);
    }
    const CallPtr call = NewPull(
        request.server, pulls->ahead, header, {buffer.Piece(0, id_bytes)},
        [this, pieces = std::move(request.pieces)](const v1::PullReply&, PayloadReader* reader) -> absl::Status {
          size_t expected = 0;
          for (const Piece& piece : pieces) expected += AlignUp(piece.bytes());
          if (reader->left() != expected) {
            return absl::DataLossError(
                absl::StrCat("rows of ", reader->left(), " bytes came, ", expected, " were asked for"));
          }
          for (const Piece& piece : pieces) {
            const size_t width = static_cast<size_t>(piece.table->width);
            const size_t rows = piece.end - piece.begin;
            const uint32_t* const positions = piece.positions();
            const auto to = [&](size_t i) { return piece.table->rows + positions[i] * width; };
            if (piece.format == v1::WIRE_FLOAT32) {
              reader->ReadRows(rows, width * sizeof(float), to);
            } else {
              const WireBuffer values = ReadDecoded(reader, piece.format, rows * width, width);
              const float* const from = reinterpret_cast<const float*>(values.data);
              for (size_t i = 0; i < rows; ++i) std::memcpy(to(i), from + i * width, width * sizeof(float));
            }
            reader->Skip(AlignUp(piece.bytes()) - piece.bytes());
          }
          return absl::OkStatus();
        });
    calls.push_back(call);
    if (!inside) Issue(call);
  }
  if (inside) RETURN_IF_ERROR(ServeInParallel(calls));
  return Wait(calls, absl::StrCat("rows of step ", pulls->step, pulls->ahead ? ", ahead of it" : ""),
              progress_deadline_ + 2 * lease_, {.profiled_as = &kRowsName, .ahead = pulls->ahead});
}

absl::Status ClientImpl::Receive(const BlockRef& block, Tensor* out) {
  const auto count = block_counts_.find(block.name);
  if (count == block_counts_.end() || block.server < 0 || block.server >= servers()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has no block ", block.name, " on server ", block.server));
  }
  if (out->dtype() != v1::FLOAT32 || out->size() != count->second) {
    return absl::InvalidArgumentError(absl::StrCat("block ", block.name, " has ", count->second,
                                                   " floats, the variable ", v1::DType_Name(out->dtype()), " ",
                                                   ShapeString(out->dims())));
  }
  wanted_.push_back({block, out});
  return absl::OkStatus();
}

absl::Status ClientImpl::FinishReceives(StepOutcome* outcome) {
  struct Piece {
    std::string name;
    int64_t begin, count;
    float* out;
  };
  struct Request {
    int server;
    std::vector<Piece> pieces;
    size_t bytes = 0;
  };
  const bool sync = options_.plan.sync(), inside = options_.transport->answers_inside();
  // Without sync a block is what it is at one moment, where one call has room for it.
  const size_t most_bytes = inside && sync ? kBytesPerCallInside : kBytesPerCall;
  const v1::WireFormat format = options_.plan.wire().pull();
  StepOutcome result;
  std::vector<CallPtr> calls;
  const auto ask = [&](Request request) {
    v1::PullRequest header;
    *header.mutable_caller() = CallerFor(request.server);
    header.set_version(in_turn_ ? version_wanted_ : 0);
    header.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
    for (const Piece& piece : request.pieces) {
      v1::PullItem* const item = header.add_items();
      item->set_name(piece.name);
      item->set_begin(piece.begin);
      item->set_count(piece.count);
      if (format != v1::WIRE_FLOAT32) item->set_format(format);
    }
    // What all trainers must see alike comes from server 0 alone, and from one of its answers.
    const bool says_outcome = request.server == 0 && calls.empty();
    const CallPtr call = NewPull(request.server, /*ahead=*/false, header, {},
                                 [this, pieces = std::move(request.pieces), says_outcome, format, &result](
                                     const v1::PullReply& reply, PayloadReader* reader) -> absl::Status {
                                   size_t expected = 0;
                                   const auto bytes_of = [format](const Piece& piece) {
                                     return EncodedBytes(format, static_cast<size_t>(piece.count), kDenseGroup);
                                   };
                                   for (const Piece& piece : pieces) expected += AlignUp(bytes_of(piece));
                                   if (reader->left() != expected) {
                                     return absl::DataLossError(absl::StrCat(
                                         "blocks of ", reader->left(), " bytes came, ", expected, " were asked for"));
                                   }
                                   for (const Piece& piece : pieces) {
                                     const size_t floats = static_cast<size_t>(piece.count);
                                     if (format == v1::WIRE_FLOAT32) {
                                       reader->Read(piece.out, floats * sizeof(float));
                                     } else {
                                       const WireBuffer values = ReadDecoded(reader, format, floats, kDenseGroup);
                                       std::memcpy(piece.out, values.data, floats * sizeof(float));
                                     }
                                     reader->Skip(AlignUp(bytes_of(piece)) - bytes_of(piece));
                                   }
                                   if (says_outcome) {
                                     result = {.version = reply.version(),
                                               .skipped = reply.skipped(),
                                               .stop = reply.stop(),
                                               .samples = reply.samples(),
                                               .ended = reply.ended(),
                                               .first_samples = reply.first_samples()};
                                   }
                                   return absl::OkStatus();
                                 });
    calls.push_back(call);
    if (!inside) Issue(call);
  };
  for (int s = 0; s < servers(); ++s) {
    Request request{s, {}};
    for (const Wanted& wanted : wanted_) {
      if (wanted.block.server != s) continue;
      float* const out = wanted.out->data<float>();
      const int64_t per_call = static_cast<int64_t>(most_bytes / sizeof(float));
      for (int64_t begin = 0; begin < wanted.out->size(); begin += per_call) {
        const int64_t n = std::min(per_call, wanted.out->size() - begin);
        const size_t bytes = static_cast<size_t>(n) * sizeof(float);
        if (request.bytes > 0 && request.bytes + bytes > most_bytes) {
          ask(std::move(request));
          request = {s, {}};
        }
        request.pieces.push_back({wanted.block.name, begin, n, out + begin});
        request.bytes += bytes;
      }
    }
    // In sync every server is waited for, one without blocks too: the next step's pushes must not find it a version
    // behind. With a bound every server has to say that the step may begin.
    if (in_turn_ || s == 0 || !request.pieces.empty()) ask(std::move(request));
  }
  wanted_.clear();
  if (inside) RETURN_IF_ERROR(ServeInParallel(calls));
  const std::string what = sync                         ? absl::StrCat("version ", version_wanted_)
                           : options_.bounded_staleness ? absl::StrCat("the others, to begin step ", version_wanted_)
                                                        : "blocks";
  RETURN_IF_ERROR(Wait(calls, what, progress_deadline_ + 2 * lease_, {.profiled_as = &kBlocksName}));
  if (!sync) {
    // What this trainer knows of its own step; nobody else's is part of it.
    result.skipped = own_verdict_ == v1::SKIP;
    result.samples = own_samples_;
    result.stop = false;
  }
  if (outcome != nullptr) *outcome = result;
  return absl::OkStatus();
}

}  // namespace weir
