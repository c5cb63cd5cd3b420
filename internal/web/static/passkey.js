"use strict";
(() => {
	const bytes = (s) => Uint8Array.from(atob(s.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
	const text = (b) => btoa(String.fromCharCode(...new Uint8Array(b))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
	if (!window.PublicKeyCredential) return;
	for (const form of document.querySelectorAll("form[data-passkey]")) {
		const o = JSON.parse(form.dataset.passkey);
		const add = "user" in o;
		const signUp = add && !o.user.name;
		o.challenge = bytes(o.challenge);
		if (add) o.user.id = bytes(o.user.id);
		for (const c of [...(o.excludeCredentials || []), ...(o.allowCredentials || [])]) c.id = bytes(c.id);
		form.hidden = false;
		let asked = false;
		form.addEventListener("submit", async (event) => {
			if (asked) return;
			event.preventDefault();
			const said = form.querySelector("[role=alert]");
			said.textContent = "";
			if (signUp) o.user.name = o.user.displayName = form.elements.name.value;
			try {
				const c = await (add ? navigator.credentials.create({ publicKey: o }) : navigator.credentials.get({ publicKey: o }));
				const r = { clientDataJSON: text(c.response.clientDataJSON) };
				for (const name of ["attestationObject", "authenticatorData", "signature", "userHandle"]) {
					if (c.response[name]) r[name] = text(c.response[name]);
				}
				form.elements.answer.value = JSON.stringify({ id: c.id, rawId: text(c.rawId), type: c.type, response: r, clientExtensionResults: {} });
				asked = true;
				form.submit();
			} catch (e) {
				said.textContent = "The passkey could not be used: " + e.message;
			}
		});
	}
})();
