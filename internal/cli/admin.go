package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/server"
)

// storeCommand is a command that works on the database itself.
func storeCommand(use, short string, run func(cmd *cobra.Command, args []string, cfg server.Config) error) *cobra.Command {
	var cfg server.Config
	c := command(use, short, func(cmd *cobra.Command, args []string) error {
		// What a first start would write there has no meaning for a database that exists.
		cfg.Environment, cfg.Release = toll.Environment(strings.ToLower(string(cfg.Environment))), release()
		return run(cmd, args, cfg)
	})
	storeFlags(c, &cfg)
	c.Flags().Lookup("key-prefix").Hidden = true
	c.Annotations = withoutProfile
	return c
}

func exportCommand(con *console) *cobra.Command {
	var before string
	var first int64
	c := storeCommand("export FILE", "Export old journal entries to an archive", func(cmd *cobra.Command, args []string, cfg server.Config) error {
		day, err := time.Parse(time.DateOnly, before)
		if err != nil {
			return usagef("--before must be a date such as 2026-01-31; got %q", before)
		}
		if first < 1 {
			return usagef("--first must be 1 or more; got %d", first)
		}
		archived, err := admin.Export(cmd.Context(), cfg, args[0], first, day)
		if err != nil {
			return err
		}
		con.say("", "Start the next archive with --first %d. Verify this archive with toll audit --archive %s.", archived.Last+1, args[0])
		return con.built(archived)
	})
	c.Flags().StringVar(&before, "before", "", "end the archive before the first entry of this day (UTC), such as 2026-01-31")
	c.Flags().Int64Var(&first, "first", 1, "position of the first entry: the last position of the previous archive plus 1")
	if err := c.MarkFlagRequired("before"); err != nil {
		panic(err) // the flag is there
	}
	c.Long = `Write the journal entries of all balances to a new JSON Lines file with a checksum. The entry of a settlement
includes its request. The service can keep running.

The command deletes nothing from the database. The service deletes requests after the number of days in toll serve --retain-days.
To keep requests for longer, export them before then.

Each archive begins where the previous archive ended. Credits are decimal strings, and times are microseconds since 1970.`
	c.Example = "toll export --data ./toll-data --before 2026-01-01 journal-2025.ndjson\n" +
		"toll export --data ./toll-data --before 2027-01-01 --first 184467 journal-2026.ndjson"
	return c
}

func auditCommand(con *console) *cobra.Command {
	var archives []string
	var record, since bool
	c := storeCommand("audit", "Verify the ledger of a database", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		began := time.Now()
		audited, err := admin.AuditFrom(cmd.Context(), cfg, since)
		if err == nil && len(archives) > 0 {
			var found []admin.Finding
			found, err = admin.AuditArchives(cmd.Context(), cfg, archives)
			audited.Findings = append(audited.Findings, found...)
		}
		if err != nil {
			return err
		}
		if record {
			if err := admin.NoteAudit(cmd.Context(), cfg, audited, since); err != nil {
				return err
			}
		}
		findings := audited.Findings
		found := map[string]any{"findings": findings, "total": len(findings)}
		err = con.showPage(found, list.Local("findings", list.State("invariant"), list.ID("account"), list.Text("detail")))
		if err != nil {
			return err
		}
		if len(findings) > 0 {
			return fmt.Errorf("the audit found %s in the ledger: copy the database before you do anything else", count(len(findings), "error"))
		}
		took := time.Since(began).Round(time.Millisecond)
		if since {
			con.say("", "The ledger is correct (new entries only), checked in %s.", took)
		} else {
			con.say("", "The ledger is correct, checked in %s.", took)
		}
		con.say("", "The journal up to position %d has the hash %s.", audited.Seal.Position, audited.Seal.Hash)
		return nil
	})
	c.Long = `Verify the ledger of a database, balance by balance. The service can keep running. The audit checks that minted credits equal remaining
plus burned credits, that every hold is covered by credits, that each request burned its credits once, that no limit was exceeded, that
the hash chain of entries is complete, that every paid order has its credits, that card payments match their orders and the balance
changes at the card processor, that no audit log entry was changed, and that records match their last audit log entry.
docs/OPERATING.md lists the columns that the audit cannot verify. With --archive, the audit also checks that the file is complete, that
its hash chains are correct, and that the database has the same entries. Exit code 1 means that the audit found an error.

Without --record, the audit changes nothing in the database. With --record, it stores its time and result for the metrics of the service
and, if it found no error, seals the journal. Run toll audit --record every day. With --since-last, the audit verifies only entries after
the last seal, and all records except events and usage. It does not change the age of the last audit. A full audit also verifies the seal.`
	c.Flags().BoolVar(&record, "record", false, "store time and result in the database, for toll_audit_age_seconds and toll_audit_findings, and seal the journal")
	c.Flags().BoolVar(&since, "since-last", false, "verify only entries after the last seal, which an audit with --record sets")
	c.Flags().StringArrayVar(&archives, "archive", nil, "also verify this file of toll export; repeat the flag for several files, oldest first")
	c.Example = "toll audit --data ./toll-data\ntoll audit --data ./toll-data --since-last --record\ntoll audit --data ./toll-data --archive journal-2025.ndjson\ntoll audit --database postgres://… --master-key-file master.key -o json"
	return c
}

func migrateCommand(a *app) *cobra.Command {
	var online bool
	run := func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		log, err := a.newLog("info")
		if err != nil {
			return err
		}
		cfg.Log = log
		done, err := server.Migrate(cmd.Context(), cfg, online)
		if err != nil {
			return err
		}
		switch {
		case done.From == done.Schema:
			a.say("", "The schema is already up to date.")
		case done.From >= done.Floor:
			a.say("", "Releases with schema %d or later can use this database. To roll back, start such a release.", done.Floor)
		default:
			a.say("", "Releases with a schema before %d can no longer use this database. To roll back, restore an "+
				"earlier backup with toll restore or, on PostgreSQL, an earlier dump.", done.Floor)
		}
		return a.built(done)
	}
	c := storeCommand("migrate", "Bring the schema of a database up to date", run)
	c.Flags().BoolVar(&online, "online", false, "migrate while an older release is running, if every pending migration is safe for it")
	c.Long = `Bring the schema of a database up to date, as a newer service does when it starts. Only toll serve and
toll migrate change the schema.

The command fails while an older release uses the database. With --online, that release keeps running
if it can work with every pending migration; otherwise, stop it first. Back up the database before you
migrate: with toll backup, or on PostgreSQL with its own tools. The output explains how to roll back.

Several processes can run this command at the same time: one migrates, and the rest wait. An interrupted migration is resumed.`
	c.Example = "toll migrate --data ./toll-data\ntoll migrate --online --database postgres://… --master-key-file master.key"
	return c
}

func backupCommand(con *console) *cobra.Command {
	var verify, listed, record bool
	var tmp string
	var objects server.Config
	c := storeCommand("backup [FILE]", "Write an encrypted backup of an embedded database", func(cmd *cobra.Command, args []string, cfg server.Config) error {
		cfg.TemporaryDir, cfg.ObjectStore = tmp, objects.ObjectStore
		switch {
		case record && len(args) > 0:
			return usagef("toll backup --record does not create a backup: remove the argument %q", args[0])
		case record:
			if err := admin.NoteBackup(cmd.Context(), cfg); err != nil {
				return err
			}
			con.say("", "The backup is recorded: toll_backup_age_seconds counts from now.")
			return nil
		case len(args) == 0:
			return usagef("toll backup needs FILE or --record")
		}
		if listed {
			made, err := server.ListBackups(cmd.Context(), cfg, args[0])
			if err != nil {
				return err
			}
			found := map[string]any{"backups": made, "total": len(made)}
			return con.showPage(found, list.Local("backups", list.Name("name"), list.Time("at"), list.Count("bytes")))
		}
		if verify {
			info, err := server.VerifyBackup(cmd.Context(), cfg, args[0])
			if err != nil {
				return err
			}
			con.say("", "The backup is complete, and the master key decrypts it.")
			return con.built(info)
		}
		if args[0] == "-" {
			_, err := server.BackupTo(cmd.Context(), cfg, con.out)
			return err
		}
		info, err := server.Backup(cmd.Context(), cfg, args[0])
		if err != nil {
			return err
		}
		con.say("", "Only the master key can decrypt this file, and the file does not contain the key. Keep a copy of the key in another place.")
		return con.built(info)
	})
	c.Flags().BoolVar(&verify, "verify", false, "read and decrypt a complete backup with the master key, without restoring it")
	c.Flags().BoolVar(&listed, "list", false, "list the scheduled backups in a folder or in s3://bucket/prefix")
	c.Flags().BoolVar(&record, "record", false, "only record in the database that another tool has just created a backup")
	c.MarkFlagsMutuallyExclusive("verify", "list", "record")
	c.Flags().StringVar(&tmp, "tmp", "", "folder for the unencrypted copy of the database during the backup; default the data directory")
	objectStoreFlags(c, &objects)
	c.Long = `Write an encrypted, consistent copy of an embedded database. The service can keep running. The command verifies the backup before
the file gets its final name. A backup belongs to one environment, and does not contain the master key that decrypts it. A database
with an older schema is copied unchanged. With -, the backup is written to stdout, for a program that stores it in another place, and
s3://bucket/prefix/name is an object in an S3-compatible store.

toll serve --backup-dir creates backups automatically. For PostgreSQL, use its own tools: pg_dump, or an archive of the write-ahead log.
After they succeed, run toll backup --record to store the time in the database, for toll_backup_age_seconds and its alert.`
	c.Example = "toll backup --data ./toll-data toll-2026-11-21.backup\ntoll backup --data ./toll-data --verify toll-2026-11-21.backup\ntoll backup " +
		"--s3-endpoint https://s3.example.com --s3-key-file s3.key --list s3://vault/toll\ntoll backup --data ./toll-data --tmp /run/toll - | ssh " +
		"keep@vault 'cat >toll.backup'\ntoll backup --record --database postgres://… --master-key-file master.key"
	return c
}

func restoreCommand(con *console) *cobra.Command {
	var objects server.Config
	c := storeCommand("restore FILE", "Restore an embedded database from a backup", func(cmd *cobra.Command, args []string, cfg server.Config) error {
		cfg.ObjectStore = objects.ObjectStore
		info, err := server.Restore(cmd.Context(), cfg, args[0])
		if err != nil {
			return err
		}
		con.say("", "The database is restored as it was %s ago, without later changes. Verify its ledger with toll audit.", info.Age(time.Now()))
		con.say("", "Start toll serve, which reads all payments since the backup. "+
			"toll recovery show reports the progress, and toll orders unmatched lists payments without an order.")
		return con.built(info)
	})
	c.Long = `Restore the embedded database of a backup into a directory without a database. You need the master key of the backup, by default
master.key in that directory. A live backup also needs --environment live.

FILE is a path or s3://bucket/prefix/name. The database is marked as restored until you run toll recovery end, because payments
made after the backup must still be resolved.`
	c.Example = "toll restore --data ./new-data --master-key-file ./master.key toll-2026-11-21.backup\n" +
		"toll restore --data ./new-data --master-key-file ./master.key --s3-key-file s3.key s3://vault/toll/toll-20261121T030000Z.backup"
	objectStoreFlags(c, &objects)
	return c
}
