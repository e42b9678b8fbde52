// Ledger of the steps of an async job that are in no checkpoint yet, and would be lost if nobody saved again. Not
// thread-safe.
#ifndef WEIR_PSERVER_SERVER_SAVE_LEDGER_H_
#define WEIR_PSERVER_SERVER_SAVE_LEDGER_H_

#include <cstdint>
#include <string>

namespace weir {

class SaveLedger {
 public:
  // Records that some trainer has pushed something.
  void Pushed() { pushed_ = true; }
  bool pushed() const { return pushed_; }
  // Records that one more step with samples has taken effect here.
  void TookEffect() { ++effective_; }
  // Records that the shard has been written.
  void Written() { written_ = effective_; }
  // Records that a trainer that is done has confirmed that everything written is in a published checkpoint.
  void Saved() { saved_ = written_; }

  // Returns "", or a description of the steps that have taken effect here and are in no checkpoint, with the way out.
  std::string Unsaved() const;

 private:
  bool pushed_ = false;
  // Numbers of steps with samples: those that have taken effect here, those in the shard written last, and those that a
  // trainer has confirmed. Invariant: saved_ <= written_ <= effective_.
  int64_t effective_ = 0, written_ = 0, saved_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_SAVE_LEDGER_H_
