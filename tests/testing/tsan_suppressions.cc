// Tells ThreadSanitizer which of its reports are none. Read by its runtime when a program starts.

#ifdef WEIR_TSAN

extern "C" const char* __tsan_default_suppressions();

// Abseil's library is not instrumented. It counts the references of a Status down in a function of its own, and who
// drops the last one frees it in code of ours: to the runtime no order stands between that and another thread's copy.
// Reports of a Status itself, written here and read there, have no Unref in them and stay.
extern "C" const char* __tsan_default_suppressions() { return "race:^Unref$\nrace:^absl::*::Status::Unref\n"; }

#endif
