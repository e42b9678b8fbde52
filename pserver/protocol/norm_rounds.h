// Norms over values that several servers hold parts of: the state of one step (in async of one trainer's transaction)
// on one server, and the addition between servers. Not thread-safe.
//
//   server   Wanted --Offer: sums made--> Waiting --Book: norms come--> Wanted (next round) ... Complete --> updates
//   trainer  asks every server for round 0, AddSums, NormsOf, brings them with the call of round 1, and so on
//
// Sums are exact (framework/base/exact_sum.h): neither their order nor the cut changes a bit.
#ifndef WEIR_PSERVER_PROTOCOL_NORM_ROUNDS_H_
#define WEIR_PSERVER_PROTOCOL_NORM_ROUNDS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/exact_sum.h"
#include "proto/parameter_server.pb.h"
#include "proto/program.pb.h"

namespace weir {

// Sums and norms by the attribute `name` of whole_norm, which groups what one norm covers.
using NormSums = std::map<std::string, ExactSum, std::less<>>;
using Norms = std::map<std::string, double, std::less<>>;

// Returns the square roots of the totals. OutOfRange names a norm that is NaN or infinite; no step can be made with it.
absl::StatusOr<Norms> NormsOf(const NormSums& totals);

// Adds the sums that one server offered to `totals`. DataLoss: bytes that are no sum.
absl::Status AddSums(const v1::NormsReply& reply, NormSums* totals);

// State of one step on one server.
class NormRounds {
 public:
  explicit NormRounds(int rounds = 0) : rounds_(rounds) {}

  bool Complete() const { return round_ == rounds_; }
  // True while the sums of round() are offered and its norms have not come.
  bool Waiting() const { return offered_; }
  int round() const { return round_; }
  // Norms of all rounds so far.
  const Norms& norms() const { return norms_; }

  // Offers the sums of round(). Must not be Waiting or Complete.
  void Offer(NormSums sums);
  // Completes round() at once: with one server its sums are the totals. `known`: norms of other names, which nobody has
  // to be asked for. Errors as NormsOf.
  absl::Status OfferAlone(const NormSums& sums, const Norms& known = {});
  // Stores the norms of a round. A repeat changes nothing. FailedPrecondition: that round's sums are not offered.
  // InvalidArgument: other names than were offered, or a value that cannot be a norm.
  absl::Status Book(int round, const google::protobuf::RepeatedPtrField<v1::WholeNorm>& norms);
  // Writes the sums of round() into the reply.
  void Fill(v1::NormsReply* reply) const;

 private:
  int rounds_;
  int round_ = 0;
  bool offered_ = false;
  NormSums sums_;
  Norms norms_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_NORM_ROUNDS_H_
