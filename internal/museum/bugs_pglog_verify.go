// Bugs of Verify, one check after another left out, and of what keeps it from finding
// what is not there; bugs of Examine.

package main

var pglogVerifyBugs = area{"pglog verify", "eventstore/pglog", append(unchecked(
	check{"gaps", "verify_stream.go", "e.seqno > next && next <= c.row.last", "entry_in_the_middle_deleted"},
	check{"entries missing at the end", "verify_stream.go", "next <= r.last", "last_entry_deleted"},
	check{"entries above the head", "verify_stream.go", "e.seqno > c.row.last", "last_seqno_too_low"},
	check{"seqnos twice", "verify_stream.go", "e.seqno == c.place.prev.seqno && c.place.begun", "seqno_twice"},
	check{"slots of entries", "verify_stream.go", "e.slot != want", "slot_of_an_entry"},
	check{"slots of streams", "verify_stream.go", "r.slot != want", "slot_of_a_stream"},
	check{"categories of entries", "verify_stream.go", "e.category != c.category", "entry_of_another_category"},
	check{"watermarks", "verify_stream.go", "r.last < 0 || r.trimmed < 0 || r.trimmed > r.last", "watermark_above_the_head"},
	check{"falling epochs", "verify_stream.go", "e.epoch < p.epoch", "epoch_falls"},
	check{"epochs above the registry's", "verify_stream.go", "e.epoch > r.epoch", "below_an_entry"},
	check{"falling times", "verify_stream.go", "p.time != nil && *e.time < *p.time", "time_falls"},
	check{"the registry's last ID", "verify_stream.go", "p.id != r.lastID", "last_ID_of_another_entry"},
	check{"the registry's last time", "verify_stream.go", "r.lastTime != nil && *p.time < *r.lastTime", "last_time_too_late"},
	check{"the order of positions", "verify_stream.go", "c.place.begun && e.position <= p.position && e.seqno != p.seqno", "positions_swapped"},
	check{"trims past a snapshot", "verify_stream.go", "r.demand && *r.snapshot < r.trimmed", "snapshot_below_the_watermark"},
	check{"heads of snapshots", "verify_stream.go", "*r.snapshot < 1 || *r.snapshot > r.last", "snapshot_above_the_head"},
	check{"ends of batches", "verify_batch.go", "!prev.batch.IsZero() && prev.whole && id == eventstore.DeriveUUID(prev.batch, int(e.seqno-prev.first))", "batch_ID_at_its_last_entry"},
	check{"positions that come twice", "verify_store.go", "p <= reported", "one_position_twice"},
	check{"tables that are not attached", "verify_store.go", "!t.attached", "table_detached"},
	check{"indexes", "verify_store.go", "!slices.Contains(t.unique, columns)", "primary_key_dropped"},
	check{"trimmed-to positions without a trim", "verify_shared.go", "c.trimmed == 0 || c.anywhere", "position_without_a_trim"},
	check{"sizes of checksums", "verify_beside.go", "s.checksum != sha256.Size", "checksum_cut_off"},
	check{"checkpoints above the sequence", "verify_beside.go", "c.position > c.drawn", "checkpoint_above_the_sequence"},
	check{"holds of streams trimmed past", "verify_beside.go", "*h.trimmed > 0 && h.seqno <= *h.trimmed", "stream_trimmed_past_a_hold"},
	check{"holds of categories trimmed past", "verify_beside.go", "*h.categoryTrimmed > 0 && h.position <= *h.categoryTrimmed", "category_trimmed_past_a_hold"},
	check{"marks of holds on streams", "verify_beside.go", "err == nil && m != id", "hold_on_another_entry"},
	check{"ends of leases", "verify_beside.go", "far && holder.Valid", "lease_for_ever"},
), []bug{
	{"limits of events not checked", "eventstore/pglog/verify_stream.go",
		"eventstore.CheckEvent(&event, int(e.size)); err != nil {", "eventstore.CheckEvent(&event, int(e.size)); err != nil && false {", "TestVerifyRows/(payload_too_large|entry_without_a_type)"},
	{"beginnings of batches not checked", "eventstore/pglog/verify_batch.go",
		"	case started.whole:\n", "	case false && started.whole:\n", "TestVerifyRows/batch_ID_at_its_first_entry"},
	{"batches torn by another not checked", "eventstore/pglog/verify_batch.go",
		"if before.proved && id", "if false && before.proved && id", "TestVerifySteps"},
	{"long stream read from its beginning again", "eventstore/pglog/verify_shared.go",
		"ordinals[i], after[i] = t.ordinal, t.place.prev.seqno",
		"ordinals[i], after[i] = t.ordinal, 0*t.place.prev.seqno", "TestVerifySteps"},
	{"streams behind the first page left out", "eventstore/pglog/verify_shared.go",
		"		*key = t.key\n", "		*key = \"\\U0010ffff\"\n", "TestVerifySteps"},
	{"payload measured and not read", "eventstore/pglog/verify_sql.go",
		"octet_length(x.data), bit_count(x.data)", "octet_length(x.data), 0", "TestVerifyUnreadable"},
	{"first entry that cannot be read ends it all", "eventstore/pglog/verify_shared.go",
		"	if damaged(err) { // one by one then", "	if false && damaged(err) { // one by one then", "TestVerifyUnreadable"},
	{"damage told as an outage", "eventstore/pglog/errors.go",
		"	case \"XX\": //", "	case \"X-\": //", "TestVerifyUnreadable"},
	{"data of snapshots not compared with the checksum", "eventstore/pglog/verify_sql.go",
		"and sha256(data) is distinct from checksum", "and sha256(data) is null", "TestVerifyRows/bit_of_a_snapshot"},
	{"entries without a stream passed over", "eventstore/pglog/verify_sql.go",
		"coalesce(max(e.position), 0),\n  count(*) filter (where s.ordinal is null)", "coalesce(max(e.position), 0),\n  count(*) filter (where s.ordinal < 0)", "TestVerifyRows/stream_gone"},
	{"checkpoint of another store judged by this one's", "eventstore/pglog/verify_beside.go",
		"	case incarnation != store:\n", "	case false && incarnation != store:\n", "TestVerifyRows/checkpoint_of_another_store"},
	{"pooler not seen", "eventstore/pglog/doctor_pool.go",
		"case uint32(pid) == conn.Conn().PgConn().PID():", "case pid > 0:", "TestExaminePooler"},
	{"prepared statement that was lost taken for kept", "eventstore/pglog/doctor_pool.go",
		"	case err != nil:\n		x.add(\"pooler\", eventstore.SeverityFault", "	case err != nil && !moved:\n		x.add(\"pooler\", eventstore.SeverityFault", "TestExaminePooler"},
	{"prepared transactions that hold the feed not named", "eventstore/pglog/doctor_sessions.go",
		"left join pg_prepared_xacts p on p.transaction = x.transactionid", "left join pg_prepared_xacts p on false", "TestExamineServer"},
	{"isolation level of the role not looked at", "eventstore/pglog/doctor.go",
		`x.want(level == "read committed",`, `x.want(level != "",`, "TestExamineRole"},
	{"newer schema taken for ours", "eventstore/pglog/doctor_schema.go",
		"case *version != SchemaVersion:", "case *version < SchemaVersion:", "TestExamineSchema"},
}...)}

// check is a condition of Verify, and the damage that only it finds.
type check struct{ name, file, condition, damage string }

// unchecked makes a bug of each check: it never finds anything.
func unchecked(all ...check) (bugs []bug) {
	for _, c := range all {
		never := "(false && (" + c.condition + "))"
		if c.condition == "p <= reported" || c.condition == "c.trimmed == 0 || c.anywhere" { // these pass over what is sound
			never = "(true || (" + c.condition + "))"
		}
		bugs = append(bugs, bug{c.name + " not checked", "eventstore/pglog/" + c.file, c.condition, never, "TestVerify(Rows|Tables)/(" + c.damage + ")"})
	}
	return bugs
}
