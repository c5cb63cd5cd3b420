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
	c := storeCommand("export FILE", "Write old entries of the journal to an archive", func(cmd *cobra.Command, args []string, cfg server.Config) error {
		day, err := time.Parse(time.DateOnly, before)
		if err != nil {
			return usagef("--before is a day such as 2026-01-31; got %q", before)
		}
		if first < 1 {
			return usagef("--first is a position from 1 on; got %d", first)
		}
		archived, err := admin.Export(cmd.Context(), cfg, args[0], first, day)
		if err != nil {
			return err
		}
		con.say("", "The next archive begins with --first %d. toll audit --archive %s proves this one.", archived.Last+1, args[0])
		return con.built(archived)
	})
	c.Flags().StringVar(&before, "before", "", "the archive ends before the first entry of this day (UTC), such as 2026-01-31")
	c.Flags().Int64Var(&first, "first", 1, "position of the first entry: the one behind the archive before")
	if err := c.MarkFlagRequired("before"); err != nil {
		panic(err) // the flag is there
	}
	c.Long = `Write the entries of all accounts, with the requests of settlements, to a new file of JSON lines with a checksum, while the service
runs or not. Nothing is removed: toll serve --retain-days says when requests go. Make an archive before that to keep them.

Each archive begins where the one before it ended. Credits are decimal strings, times are microseconds since 1970.`
	c.Example = "toll export --data ./toll-data --before 2026-01-01 journal-2025.ndjson\n" +
		"toll export --data ./toll-data --before 2027-01-01 --first 184467 journal-2026.ndjson"
	return c
}

func auditCommand(con *console) *cobra.Command {
	var archives []string
	var record, since bool
	c := storeCommand("audit", "Prove the books of a database", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
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
			return fmt.Errorf("%s in the books: keep a copy of the database before anything else is done", count(len(findings), "fault"))
		}
		took := time.Since(began).Round(time.Millisecond)
		if since {
			con.say("", "The books are right, new entries only, checked in %s.", took)
		} else {
			con.say("", "The books are right, checked in %s.", took)
		}
		con.say("", "The journal up to position %d has the hash %s.", audited.Seal.Position, audited.Seal.Hash)
		return nil
	})
	c.Long = `Prove the books of a database, account by account, while the service runs or not: credits that were minted are what is left
and what was burned, holds are covered, each request was burned once, no limit was passed, the chain of entries is whole,
every paid order has its credits, payments by card agree with their orders and with changes of the balance at the processor, no entry
of an audit log was changed, and records are what it says of them last. docs/OPERATING.md lists what nothing proves. With --archive also that a file of toll export is whole,
that its chains recompute, and that the database has the same entries. Exit code 1 when something does not hold.

It changes nothing, unless --record has it note its outcome for the metrics of the service, and seal the journal when it found nothing.
Run it every day with that. With --since-last it proves new entries only: those behind the last seal, and all records, but neither
earlier entries nor events and usage. The age of the last audit stays as it is then. A whole audit proves the seal as well.`
	c.Flags().BoolVar(&record, "record", false, "note time and outcome in the database, for toll_audit_age_seconds and toll_audit_findings, and seal the journal")
	c.Flags().BoolVar(&since, "since-last", false, "prove new entries only: those behind the position that the last audit with --record sealed")
	c.Flags().StringArrayVar(&archives, "archive", nil, "file of toll export that is proved as well; several in their order")
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
			a.say("", "The schema is up to date: nothing was changed.")
		case done.From >= done.Floor:
			a.say("", "Releases from schema %d on can work with this database. To go back, start one of them.",
				done.Floor)
		default:
			a.say("", "Releases before schema %d refuse this database now. To go back, restore a backup from "+
				"before: toll restore, on PostgreSQL your dump.", done.Floor)
		}
		return a.built(done)
	}
	c := storeCommand("migrate", "Bring the schema of a database up to date", run)
	c.Flags().BoolVar(&online, "online", false,
		"migrate while an older release serves, if every pending migration is safe for it")
	c.Long = `Bring the schema of a database up to date, as the start of a newer service does. Only toll serve
and toll migrate do that.

It is refused while an older release serves the database. With --online that release goes on, if it
can work with every pending migration; else stop it first. Make a backup before: toll backup, on
PostgreSQL with its own tools. The command says how to go back afterwards.

Several may do this at once: one does it, the others wait. A migration that was interrupted is resumed.`
	c.Example = "toll migrate --data ./toll-data\n" +
		"toll migrate --online --database postgres://… --master-key-file master.key"
	return c
}

func backupCommand(con *console) *cobra.Command {
	var verify, listed, record bool
	var tmp string
	var objects server.Config
	c := storeCommand("backup [FILE]", "Write a sealed copy of an embedded database", func(cmd *cobra.Command, args []string, cfg server.Config) error {
		cfg.TemporaryDir, cfg.ObjectStore = tmp, objects.ObjectStore
		switch {
		case record && len(args) > 0:
			return usagef("toll backup --record makes no backup, and takes no argument %q", args[0])
		case record:
			if err := admin.NoteBackup(cmd.Context(), cfg); err != nil {
				return err
			}
			con.say("", "It is noted that a backup was made now: toll_backup_age_seconds counts from here.")
			return nil
		case len(args) == 0:
			return usagef("toll backup needs FILE, or --record")
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
			con.say("", "The backup is whole, and the master key opens it.")
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
		con.say("", "Only the master key opens this file, and it is not in it: keep a copy of the key elsewhere.")
		return con.built(info)
	})
	c.Flags().BoolVar(&verify, "verify", false, "read a whole backup and open it with the master key, without a restore")
	c.Flags().BoolVar(&listed, "list", false, "list the scheduled backups of the folder, or of s3://bucket/prefix")
	c.Flags().BoolVar(&record, "record", false, "make nothing, and note in the database that other tools made a backup now")
	c.MarkFlagsMutuallyExclusive("verify", "list", "record")
	c.Flags().StringVar(&tmp, "tmp", "", "folder for the plain copy of the database while the backup is made; default the data directory")
	objectStoreFlags(c, &objects)
	c.Long = `Write a sealed copy of an embedded database, as it is in one moment, while the service runs or not. The file is read back
before it gets its name, and is bound to the environment. The master key that opens it is not in it. A database with an
older schema is copied as it is. With - the backup goes to stdout, for a program that keeps it elsewhere, and
s3://bucket/prefix/name is an object of an S3-compatible store.

toll serve --backup-dir makes backups by itself. PostgreSQL has tools of its own: pg_dump, or an archive of its write-ahead log.
After they have succeeded, toll backup --record notes the time in the database, for toll_backup_age_seconds and its alert.`
	c.Example = "toll backup --data ./toll-data toll-2026-11-21.backup\n" +
		"toll backup --data ./toll-data --verify toll-2026-11-21.backup\n" +
		"toll backup --s3-endpoint https://s3.example.com --s3-key-file s3.key --list s3://vault/toll\n" +
		"toll backup --data ./toll-data --tmp /run/toll - | ssh keep@vault 'cat >toll.backup'\n" +
		"toll backup --record --database postgres://… --master-key-file master.key"
	return c
}

func restoreCommand(con *console) *cobra.Command {
	var objects server.Config
	c := storeCommand("restore FILE", "Make a database of a backup", func(cmd *cobra.Command, args []string, cfg server.Config) error {
		cfg.ObjectStore = objects.ObjectStore
		info, err := server.Restore(cmd.Context(), cfg, args[0])
		if err != nil {
			return err
		}
		con.say("", "The database is as it was %s ago; what happened later is not in it. toll audit proves its books.", info.Age(time.Now()))
		con.say("", "Start toll serve: it reads the rails from then on. toll recovery show says how far it is, and toll orders unmatched lists what was paid since and has no order here.")
		return con.built(info)
	})
	c.Long = `Make the embedded database of a backup in a directory that holds none. It needs the master key of the backup, by default
master.key in that directory, and the environment of the backup: live is restored with --environment live only.

The file is a path, or s3://bucket/prefix/name. The database is marked as restored until toll recovery end: payments that came
after the backup are still to be dealt with.`
	c.Example = "toll restore --data ./new-data --master-key-file ./master.key toll-2026-11-21.backup\n" +
		"toll restore --data ./new-data --master-key-file ./master.key --s3-key-file s3.key s3://vault/toll/toll-20261121T030000Z.backup"
	objectStoreFlags(c, &objects)
	return c
}
