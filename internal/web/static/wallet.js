"use strict";
(() => {
	const wallets = new Map(); // by their reverse domain name (EIP-6963)
	const offer = document.querySelector("form[data-wallets]");
	const sign = document.querySelector("form[data-sign]");
	const said = (offer || sign).querySelector("[role=alert]");
	const fail = (e) => { said.textContent = "The wallet did not complete the request: " + ((e && e.message) || "no reason given"); };
	const ask = async (provider, id) => {
		said.textContent = "";
		try {
			const accounts = await provider.request({ method: "eth_requestAccounts" });
			offer.elements.address.value = accounts[0];
			offer.elements.wallet.value = id;
			offer.submit();
		} catch (e) { fail(e); }
	};
	const button = (provider, id, name) => {
		const b = document.createElement("button");
		b.type = "button";
		b.className = "plain";
		b.textContent = offer.dataset.wallets + " " + name;
		b.addEventListener("click", () => ask(provider, id));
		offer.insertBefore(b, said);
		offer.hidden = false;
	};
	let asked = false;
	const signWith = async (provider) => {
		if (asked) return;
		asked = true;
		said.textContent = "";
		try {
			const text = document.getElementById("text").textContent;
			const hex = "0x" + Array.from(new TextEncoder().encode(text), (b) => b.toString(16).padStart(2, "0")).join("");
			sign.elements.signature.value = await provider.request({ method: "personal_sign", params: [hex, sign.dataset.sign] });
			sign.submit();
		} catch (e) { asked = false; fail(e); }
	};
	window.addEventListener("eip6963:announceProvider", (event) => {
		const { info, provider } = event.detail;
		if (wallets.has(info.rdns)) return;
		wallets.set(info.rdns, provider);
		if (offer) button(provider, info.rdns, String(info.name).slice(0, 40));
		else if (sign.dataset.auto && info.rdns === sign.elements.wallet.value) signWith(provider); // not again after a refusal
	});
	window.dispatchEvent(new Event("eip6963:requestProvider"));
	setTimeout(() => { // a wallet that does not announce itself
		if (offer && wallets.size === 0 && window.ethereum) button(window.ethereum, "", "a browser wallet");
		if (sign && sign.dataset.auto && !sign.elements.wallet.value && window.ethereum) signWith(window.ethereum);
	}, 300);
	if (sign) sign.addEventListener("submit", (event) => {
		if (sign.elements.signature.value) return;
		event.preventDefault();
		const provider = wallets.get(sign.elements.wallet.value) || window.ethereum;
		if (provider) signWith(provider);
		else said.textContent = "The wallet is no longer available. Go back and choose a wallet.";
	});
})();
