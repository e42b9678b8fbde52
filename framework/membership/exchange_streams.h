// Streams of bytes of any size from one trainer to one other: the reader takes chunks while the writer brings the next,
// so the server holds few at a time. Not thread-safe; its owner locks around it. The calls are those of
// ExchangeRequest.stream_to and stream_from.
#ifndef WEIR_FRAMEWORK_MEMBERSHIP_EXCHANGE_STREAMS_H_
#define WEIR_FRAMEWORK_MEMBERSHIP_EXCHANGE_STREAMS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/membership.pb.h"

namespace weir {

class ExchangeStreams {
 public:
  explicit ExchangeStreams(int trainers) : trainers_(trainers) {}

  // Stores a chunk from `trainer`; a repeated chunk changes nothing. InvalidArgument: a chunk out of order, or too
  // large. ResourceExhausted: the window is full, or the trainer writes to too many streams.
  absl::Status Write(const v1::ExchangeRequest& request, int trainer);
  // Returns true if there is room for chunk `request.chunk` of `trainer`.
  bool HasRoom(const v1::ExchangeRequest& request, int trainer) const;

  // Forgets the chunks before `request.chunk`, which the reader `trainer` has taken.
  absl::Status Take(const v1::ExchangeRequest& request, int trainer);
  // Puts the chunk that the reader asks for, or the end of the stream, into the reply. Returns false if neither is
  // there yet. `gone`: the writer will bring nothing more.
  bool Read(const v1::ExchangeRequest& request, int trainer, bool gone, v1::ExchangeReply* reply) const;
  // Returns the number of bytes that Read would put into its reply.
  size_t ReadBytes(const v1::ExchangeRequest& request, int trainer) const;

  // Ends the streams of a trainer that has died: chunks for it are dropped, now and later; its own streams end after
  // the chunks already here.
  void Close(int trainer);
  // Forgets streams that ended longer than `keep` ago; before that a call whose reply was lost may come again.
  void Expire(absl::Time now, absl::Duration keep);

 private:
  struct Stream {
    std::deque<std::string> chunks;  // from `taken` on
    int taken = 0;
    int count = 0;  // number of all chunks; 0: not known yet
    bool closed = false;
    absl::Time ended = absl::InfiniteFuture();
    int next() const { return taken + static_cast<int>(chunks.size()); }
    bool Over() const { return closed || (count > 0 && taken == count); }
  };
  using Id = std::tuple<std::string, int, int>;  // key, writer, reader
  const Stream* Find(const Id& id) const;

  int trainers_;
  std::map<Id, Stream> streams_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_MEMBERSHIP_EXCHANGE_STREAMS_H_
