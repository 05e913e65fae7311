// Bugs of the migrations: half of one, twice the same, two at once, names.

package main

var migrationBugs = area{"migrations", "migrations", []bug{
	{"version not recorded", "migrations/versions.go",
		"return `INSERT INTO ` + t + ` (version_id, is_applied) VALUES ($1, $2)`",
		"return `INSERT INTO ` + t + ` (version_id, is_applied) SELECT $1::bigint, $2::bool WHERE $1::bigint = 0`", "TestUpDownUp"},
	{"concurrent migrators without the lock", "migrations/locker.go",
		"		case held:\n",
		"		case held || true:\n", "TestConcurrentMigrators|TestAWaitingMigrator"},
	{"waiting migrator does not say for whom", "migrations/locker.go",
		"case waited && ctx.Err() != nil:",
		"case waited && false:", "TestCaseC4|TestAWaitingMigrator"},
	{"bootstrap without its lock", "migrations/versions.go",
		"SELECT true FROM pg_advisory_xact_lock(hashtextextended($1, 0))",
		"SELECT true FROM (SELECT $1::text) x", "TestConcurrentMigrators"},
	{"lock of a dead migrator never taken over", "migrations/locker.go",
		"WHERE NOT l.locked OR l.lease_expires_at < now()",
		"WHERE NOT l.locked", "TestCaseC4"},
	{"schema name not quoted", "migrations/name.go",
		"func (n name) quoted() string { return pgx.Identifier{string(n)}.Sanitize() }",
		"func (n name) quoted() string { return string(n) }", "TestOddSchemaNames"},
	{"schema name taken for a variable", "migrations/name.go",
		"		\"-- +goose ENVSUB ON\", \"-- +goose ENVSUB OFF\",\n",
		"", "TestOddSchemaNames"},
	{"table left to search_path", "migrations/sql/00001_store.sql",
		"CREATE TABLE ${WATTLE_SCHEMA:-wattle}.leases",
		"CREATE TABLE leases", "TestFilesAreQualified"},
	{"down leaves tables behind", "migrations/sql/00001_store.sql",
		"  ${WATTLE_SCHEMA:-wattle}.leases,\n",
		"", "TestUpDownUp"},
}}
