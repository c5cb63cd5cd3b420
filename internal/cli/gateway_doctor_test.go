package cli

import "testing"

func TestGatewayDoctor_Node(t *testing.T) {
	for version, want := range map[string]bool{
		"v24.16.0": true, "v24.21.0": true, "v26.1.0": true, "v26.9.3": true, "v27.0.0": true,
		"v24.15.9": false, "v25.9.0": false, "v26.0.9": false, "v20.11.1": false, "v22.22.0": false,
		"": false, "24.16.0": false, "v24": false, "v24.16": false, "v24.16.0-nightly": false, "v99999999999999999999.1.0": false,
	} {
		if nodeFits(version) != want {
			t.Errorf("%q: %t", version, !want)
		}
	}
}
