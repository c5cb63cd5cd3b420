package gateway_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// TestManifest: the committed files are those of the registry, byte by byte.
// T149
func TestManifest(t *testing.T) {
	files := must.Get(gateway.Manifest(x402.Default))(t)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("openclaw", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the registry makes: run toll gateway manifest --out gateway/openclaw", name)
		}
	}
}

// TestManifest_Package: installing the plugin runs nothing of it and brings nothing of others.
// T149
func TestManifest_Package(t *testing.T) {
	text := must.Get(os.ReadFile("openclaw/package.json"))(t)
	var pack struct {
		Version                                                 string
		Scripts                                                 map[string]string
		Dependencies, OptionalDependencies, BundledDependencies any
	}
	if err := json.Unmarshal(text, &pack); err != nil || pack.Version != gateway.PluginVersion {
		t.Errorf("package.json has the version %s, gateway.PluginVersion is %s", pack.Version, gateway.PluginVersion)
	}
	for _, name := range []string{"preinstall", "install", "postinstall", "prepare", "preprepare", "postprepare", "dependencies"} {
		if pack.Scripts[name] != "" {
			t.Errorf("package.json has the script %s: %s", name, pack.Scripts[name])
		}
	}
	if pack.Dependencies != nil || pack.OptionalDependencies != nil || pack.BundledDependencies != nil {
		t.Error("package.json has dependencies")
	}
}

// TestManifest_Fields: an operator can set every field of the configuration in the host, and no
// other.
func TestManifest_Fields(t *testing.T) {
	files := must.Get(gateway.Manifest(x402.Default))(t)
	var m struct {
		UIHints      map[string]struct{ Sensitive bool }
		ConfigSchema struct {
			AdditionalProperties any
			Properties           map[string]json.RawMessage
		}
	}
	must.Do(t, json.Unmarshal(files[gateway.ManifestFile], &m))
	var want, got []string
	for i := range reflect.TypeFor[gateway.Config]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[gateway.Config]().Field(i).Tag.Get("json"), ",")
		want = append(want, name)
	}
	want = append(want, "nvmApiKey")
	for name := range m.ConfigSchema.Properties {
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, name := range []string{"apiKey", "nvmApiKey", "agentHandler.token", "agentHandler.headers.*"} {
		if !m.UIHints[name].Sensitive {
			t.Errorf("%s is not sensitive", name)
		}
	}
	if m.ConfigSchema.AdditionalProperties != false {
		t.Errorf("additionalProperties is %v", m.ConfigSchema.AdditionalProperties)
	}
}

// TestManifest_Namespace: another namespace gives another plugin, without a word of this one.
func TestManifest_Namespace(t *testing.T) {
	files := must.Get(gateway.Manifest(x402.Namespace{Scheme: "zzz", Header: "Acme", Word: "acme"}))(t)
	for name, text := range files {
		for _, word := range []string{"svc", "service_", "/service", "nvm"} {
			if bytes.Contains(text, []byte(word)) {
				t.Errorf("%s holds %q", name, word)
			}
		}
		if !bytes.Contains(text, []byte("acme_queryAgent")) {
			t.Errorf("%s has no tool of this namespace", name)
		}
	}
}
