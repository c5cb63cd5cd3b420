"use strict";
(() => {
	const said = document.querySelector("[role=alert]");
	const answer = document.querySelector("pre");
	const wallets = []; // that announce themselves (EIP-6963)
	window.addEventListener("eip6963:announceProvider", (event) => wallets.push(event.detail.provider));
	window.dispatchEvent(new Event("eip6963:requestProvider"));

	const fields = (text) => text.split(",").map((of) => ({ type: of.split(" ")[0], name: of.split(" ")[1] }));
	const types = {
		EIP712Domain: fields("string name,string version,uint256 chainId,address verifyingContract"),
		TransferWithAuthorization: fields("address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce"),
	};

	// The wallet signs an authorization of the token (EIP-3009), for this one request. Nothing of it is kept.
	const sign = async (wallet, payment) => {
		const { network, asset, payTo, amount, maxTimeoutSeconds, extra } = payment.accepted;
		const chainId = Number(network.split(":")[1]);
		const [from] = await wallet.request({ method: "eth_requestAccounts" });
		await wallet.request({ method: "wallet_switchEthereumChain", params: [{ chainId: "0x" + chainId.toString(16) }] });
		const nonce = Array.from(crypto.getRandomValues(new Uint8Array(32)), (b) => b.toString(16).padStart(2, "0")).join("");
		const authorization = {
			from, to: payTo, value: amount, validAfter: "0", nonce: "0x" + nonce,
			validBefore: String(Math.floor(Date.now() / 1000) + maxTimeoutSeconds),
		};
		const domain = { name: extra.name, version: extra.version, chainId, verifyingContract: asset };
		const message = JSON.stringify({ domain, types, primaryType: "TransferWithAuthorization", message: authorization });
		const signature = await wallet.request({ method: "eth_signTypedData_v4", params: [from, message] });
		const bytes = new TextEncoder().encode(JSON.stringify({ ...payment, payload: { signature, authorization } }));
		return btoa(String.fromCharCode(...bytes));
	};

	// The answer is shown as text, or offered as a file: nothing of it runs on this page.
	const show = async (res) => {
		said.textContent = res.ok ? "Paid. Answer:" : "The server responded with status " + res.status + ":";
		const type = res.headers.get("Content-Type") || "";
		if (/^text\/|[/+]json/.test(type)) {
			answer.textContent = await res.text();
			answer.hidden = false;
			return;
		}
		const link = document.createElement("a");
		link.href = URL.createObjectURL(await res.blob());
		link.download = "answer";
		link.textContent = "Save the answer";
		answer.after(link);
	};

	let paying = false;
	for (const button of document.querySelectorAll("button[data-payment]")) {
		button.addEventListener("click", async () => {
			const wallet = wallets[0] || window.ethereum;
			if (paying) return;
			if (!wallet) return void (said.textContent = "This browser has no wallet. Install a wallet, or buy the plan.");
			paying = true;
			said.textContent = "Confirm the payment in your wallet.";
			try {
				const signed = await sign(wallet, JSON.parse(button.dataset.payment));
				said.textContent = "Waiting for the answer.";
				await show(await fetch(location.href, { headers: { "payment-signature": signed, Accept: "*/*" }, cache: "no-store" }));
			} catch (e) {
				said.textContent = "Failed: " + ((e && e.message) || "unknown reason") + ".";
			}
			paying = false;
		});
		button.hidden = false;
	}
})();
