package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/tempfile"
)

func configCommand(con *console) *cobra.Command {
	use := command("use PROFILE", "Switch to a profile", func(_ *cobra.Command, args []string) error { return useProfile(con, args[0]) })
	use.ValidArgsFunction = completeProfile(con)
	c := group("config", "Profiles: API key and address of a service", `Profiles: API key and address of a service, stored in one file that only you can read.

Flags override environment variables, and environment variables override the active profile.`,
		configInit(con), configSet(con), configShow(con),
		use)
	c.Annotations = withoutProfile // they must work on a profile that is not there yet
	return c
}

// document is a JSON object whose members keep their text.
type document map[string]json.RawMessage

// configuration is the configuration file. What this release does not know stays in it.
type configuration struct {
	path     string
	top      document
	profiles map[string]document
}

const defaultProfile = "default"

func (con *console) openConfig() (*configuration, error) {
	path, _ := con.configPath()
	if path == "" {
		return nil, errors.New("there is no home directory for the configuration file: set TOLL_CONFIG to the path of the file")
	}
	c := &configuration{path: path, top: document{}, profiles: map[string]document{}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if json.Unmarshal(b, &c.top) != nil || c.top == nil {
		return nil, fmt.Errorf("configuration: %s is not a valid JSON object", path) // its text holds a key
	}
	if raw, ok := c.top["profiles"]; ok && json.Unmarshal(raw, &c.profiles) != nil {
		return nil, fmt.Errorf("configuration: the profiles in %s are not valid JSON objects", path)
	}
	return c, nil
}

// save writes the file, readable by its owner alone. A reader sees the old file or the new one.
func (c *configuration) save() (err error) {
	if c.top["profiles"], err = json.Marshal(c.profiles); err != nil {
		return err
	}
	b, err := json.MarshalIndent(c.top, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(c.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := newConfiguration.Write(c.path, append(b, '\n'), true); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// newConfiguration are the files in which a configuration is written before it gets its name. They hold API keys.
var newConfiguration = tempfile.Kind{Prefix: ".config-"}

func (d document) text(name string) string { return list.TextOf(d[name]) }

func (d document) set(name, value string) {
	if value == "" {
		delete(d, name)
		return
	}
	b, _ := json.Marshal(value) // a string always has JSON
	d[name] = b
}

// active is the profile that commands use: that of the flag, of the environment, of the file.
func (con *console) active(c *configuration) string {
	return cmp.Or(con.flags.profile, con.used(c))
}

// used is the profile of commands that name none.
func (con *console) used(c *configuration) string {
	return cmp.Or(con.getenv("TOLL_PROFILE"), c.top.text("activeProfile"), defaultProfile)
}

// named is the active profile, which must be there when a flag or the environment names it.
func (con *console) named(c *configuration) (string, error) {
	name := con.active(c)
	if c.profiles[name] == nil && cmp.Or(con.flags.profile, con.getenv("TOLL_PROFILE")) != "" {
		return "", c.noProfile(name)
	}
	return name, nil
}

func (c *configuration) names() []string { return slices.Sorted(maps.Keys(c.profiles)) }

func (c *configuration) noProfile(name string) error {
	if len(c.profiles) == 0 {
		return usagef("%s has no profile %q: create it with toll config init", c.path, name)
	}
	return usagef("%s has no profile %q: use one of %s", c.path, name, strings.Join(c.names(), ", "))
}

// profile returns a profile, which is made when it is missing.
func (c *configuration) profile(name string) document {
	if c.profiles[name] == nil {
		c.profiles[name] = document{}
	}
	return c.profiles[name]
}

// Settings of a profile.
const (
	settingKey         = "apiKey"
	settingEnvironment = "environment"
	settingURL         = "url"
)

// checkSetting refuses what a setting cannot be. Empty is always possible.
func checkSetting(name, value string) error {
	if value == "" {
		return nil
	}
	switch name {
	case settingEnvironment:
		if e := toll.Environment(value); e != toll.Sandbox && e != toll.Live {
			return usagef("the environment must be sandbox or live")
		}
	case settingURL:
		if u, err := httpURL(value); err != nil || u.User != nil {
			return usagef("the URL must be an absolute http or https URL")
		}
	case settingKey:
		if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return usagef("the API key contains an invalid character") // and is not repeated
		}
	}
	return nil
}

// httpURL parses the address of a server or a page. Its error does not repeat the address, which may contain a password.
func httpURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("must be an absolute http or https URL")
	}
	return u, nil
}

// completeProfile offers the profiles of the configuration file.
func completeProfile(con *console) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		c, err := con.openConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(c.profiles)), cobra.ShellCompDirectiveNoFileComp
	}
}

func configInit(con *console) *cobra.Command {
	var key, environment, address string
	var interactive bool
	c := command("init", "Create or change a profile", nil)
	c.Long = "Create or change a profile, by default the active profile. The output shows the path of the configuration file."
	c.Example = "toll config init --url https://pay.example.com --api-key @key.txt\ntoll config init -i"
	f := c.Flags()
	f.StringVar(&key, "api-key", "", "API key; - reads it from stdin, @path from a file")
	f.StringVar(&environment, "environment", "", "sandbox (default) or live")
	f.StringVar(&address, "url", "", "address of the service")
	f.BoolVarP(&interactive, "interactive", "i", false, "prompt for missing values")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		given, err := con.keyInFile()
		if key != "" && given != "" {
			return usagef("use --api-key or --api-key-file, not both")
		}
		if err == nil && given == "" {
			given, err = con.textArgument(key)
		}
		if err != nil {
			return err
		}
		key = given
		if interactive {
			in := bufio.NewReader(con.in)
			for _, q := range []struct {
				question string
				value    *string
			}{{"Address of the service", &address}, {"Environment, sandbox or live", &environment}, {"API key", &key}} {
				if *q.value != "" {
					continue
				}
				answer, err := ask(cmd.Context(), con, in, q.question)
				if errors.Is(err, io.EOF) {
					err = errors.New("stdin ended before all questions were answered")
				}
				if err != nil {
					return err
				}
				*q.value = answer
			}
		}
		file, err := con.openConfig()
		if err != nil {
			return err
		}
		name := con.active(file)
		profile := file.profile(name)
		environment = strings.ToLower(cmp.Or(environment, profile.text(settingEnvironment), string(toll.Sandbox)))
		for setting, value := range map[string]string{settingKey: key, settingEnvironment: environment, settingURL: address} {
			if err := checkSetting(setting, value); err != nil {
				return err
			}
			profile.set(setting, cmp.Or(value, profile.text(setting)))
		}
		if file.top.text("activeProfile") == "" {
			file.top.set("activeProfile", name)
		}
		hintUse(con, file, name)
		return saveProfile(con, file, name)
	}
	return c
}

// hintUse prints how to use the profile name, if commands use another profile.
func hintUse(con *console, c *configuration, name string) {
	if con.used(c) != name {
		con.say("hint", "To switch to this profile, run toll config use %s. To use it once, add -p %s.", name, name)
	}
}

// settingOf reads the key of config set: apiKey, environment and url of the active profile, activeProfile, or
// profiles.NAME.KEY. The key of an API key may carry the prefix that plugins give it, as in xyzApiKey.
func settingOf(con *console, c *configuration, key string) (profile, name string, err error) {
	profile, name = con.active(c), key
	if rest, ok := strings.CutPrefix(key, "profiles."); ok {
		if profile, name, ok = cutLast(rest, "."); !ok || profile == "" {
			return "", "", usagef("a setting of a profile must have the form profiles.NAME.KEY")
		}
	} else if key == "activeProfile" {
		return "", key, nil
	}
	if word, ok := strings.CutSuffix(name, "ApiKey"); ok && word != "" && !strings.ContainsFunc(word, func(r rune) bool { return r < 'a' || r > 'z' }) {
		name = settingKey
	}
	switch name {
	case settingKey, settingEnvironment, settingURL:
		return profile, name, nil
	}
	return "", "", usagef("unknown setting %q: use apiKey, environment, url, activeProfile, or profiles.NAME.KEY", key)
}

func configSet(con *console) *cobra.Command {
	c := command("set KEY VALUE", "Change a setting of the active profile", nil)
	c.Long = `Change a setting. KEY is apiKey, environment, or url for the active profile, a name such as profiles.live.url for another
profile, or activeProfile.

To keep an API key out of the shell history, use - as VALUE to read it from stdin, or @path to read it from a file. An empty value
removes the setting.`
	c.Example = "toll config set url https://pay.example.com\ntoll config set profiles.live.apiKey @live.key"
	c.RunE = func(_ *cobra.Command, args []string) error {
		c, err := con.openConfig()
		if err != nil {
			return err
		}
		profile, name, err := settingOf(con, c, args[0])
		if err != nil {
			return err
		}
		value, err := con.textArgument(args[1])
		if err != nil {
			return err
		}
		if name == "activeProfile" {
			return useProfile(con, value)
		}
		if err := checkSetting(name, value); err != nil {
			return err
		}
		c.profile(profile).set(name, value)
		return saveProfile(con, c, profile)
	}
	return c
}

func useProfile(con *console, name string) error {
	c, err := con.openConfig()
	if err != nil {
		return err
	}
	if c.profiles[name] == nil {
		return c.noProfile(name)
	}
	c.top.set("activeProfile", name)
	return saveProfile(con, c, name)
}

func configShow(con *console) *cobra.Command {
	var all bool
	c := command("show", "Show the active profile, with its API key masked", nil)
	c.Flags().BoolVarP(&all, "all", "a", false, "show all profiles")
	c.RunE = func(*cobra.Command, []string) error {
		c, err := con.openConfig()
		if err != nil {
			return err
		}
		if !all {
			name, err := con.named(c)
			if err != nil {
				return err
			}
			if len(c.profiles) > 1 && con.set.output != formatQuiet {
				con.say("profiles", "%s; use --all to show all of them", strings.Join(c.names(), ", "))
			}
			return con.show(shownProfileOf(con, c, name))
		}
		var all []shownProfile
		for _, name := range c.names() {
			all = append(all, shownProfileOf(con, c, name))
		}
		shown := map[string]any{"path": c.path, "activeProfile": con.used(c), "profiles": all}
		return con.showPage(shown, list.Local("profiles", list.Name("profile"), list.Flag("active"), list.State("environment"), list.Text("url"), list.Text("apiKey", "API key")))
	}
	return c
}

type shownProfile struct {
	Path        string `json:"path"`
	Profile     string `json:"profile"`
	Active      bool   `json:"active"`
	Environment string `json:"environment"`
	URL         string `json:"url"`
	APIKey      string `json:"apiKey"` // masked
}

func shownProfileOf(con *console, c *configuration, name string) shownProfile {
	p := c.profiles[name]
	return shownProfile{
		Path: c.path, Profile: name, Active: name == con.used(c), Environment: p.text(settingEnvironment), URL: p.text(settingURL),
		APIKey: masked(p.text(settingKey)),
	}
}

// saveProfile writes the file and shows one of its profiles.
func saveProfile(con *console, c *configuration, name string) error {
	if err := c.save(); err != nil {
		return err
	}
	return con.show(shownProfileOf(con, c, name))
}

// masked shows of an API key what lists of keys show: its prefix and its last 6 characters.
func masked(key string) string {
	if key == "" {
		return ""
	}
	if env, _, short := toll.ParseShortKey(key); short {
		return env.ShortKeyPrefix() + "…" + key[len(key)-6:]
	}
	prefix, secret, ok := strings.Cut(key, ":")
	if !ok {
		prefix, secret = "", key
	}
	if len(secret) < 24 {
		return prefix + ":…"
	}
	return prefix + ":…" + secret[len(secret)-6:]
}
