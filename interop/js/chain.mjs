// Uses the embedded chain as builders do: with viem and with ethers.
import { createPublicClient, createWalletClient, http, parseAbi } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import { Contract, JsonRpcProvider, Wallet } from "ethers";
import { serve } from "./lines.mjs";

const abi = [
  "function balanceOf(address owner) view returns (uint256)",
  "function transfer(address to, uint256 amount) returns (bool)",
  "event Transfer(address indexed from, address indexed to, uint256 amount)",
];

/** Sends, reads, estimates, searches and watches, and returns what the library says. */
async function withViem({ url, key, token, to }) {
  const parsed = parseAbi(abi);
  const account = privateKeyToAccount(key);
  const transport = http(url);
  const reader = createPublicClient({ chain: baseSepolia, transport, pollingInterval: 50 });
  const writer = createWalletClient({ account, chain: baseSepolia, transport });
  const watched = [];
  const stop = reader.watchContractEvent({ address: token, abi: parsed, eventName: "Transfer", onLogs: (logs) => watched.push(...logs) });
  const numbers = [];
  const stopBlocks = reader.watchBlocks({ onBlock: (block) => numbers.push(block.number) });
  const { request, result } = await reader.simulateContract({ account, address: token, abi: parsed, functionName: "transfer", args: [to, 5n] });
  await new Promise((resolve) => setTimeout(resolve, 300)); // the filter is installed
  const hash = await writer.writeContract(request);
  const receipt = await reader.waitForTransactionReceipt({ hash });
  const paid = await writer.sendTransaction({ to, value: 7n });
  await reader.waitForTransactionReceipt({ hash: paid });
  const legacy = await writer.sendTransaction({ to, value: 1n, gasPrice: await reader.getGasPrice() });
  await reader.waitForTransactionReceipt({ hash: legacy });
  let refusal;
  try {
    await reader.simulateContract({ account, address: token, abi: parsed, functionName: "transfer", args: [to, 10n ** 20n] });
  } catch (error) {
    refusal = error.shortMessage;
  }
  const logs = await reader.getContractEvents({ address: token, abi: parsed, eventName: "Transfer", fromBlock: 0n, args: { to } });
  const [call] = (await reader.simulateCalls({ account, calls: [{ to: token, abi: parsed, functionName: "transfer", args: [to, 1n] }] })).results;
  const block = await reader.getBlock({ blockNumber: receipt.blockNumber, includeTransactions: true });
  const fees = await reader.getFeeHistory({ blockCount: 4, rewardPercentiles: [25, 75] });
  for (let i = 0; watched.length === 0 && i < 100; i++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  stop();
  stopBlocks();
  return {
    simulated: result,
    status: receipt.status,
    balance: `${await reader.readContract({ address: token, abi: parsed, functionName: "balanceOf", args: [to] })}`,
    wei: `${await reader.getBalance({ address: to })}`,
    refusal,
    logs: logs.length,
    watched: watched.length,
    blocks: numbers.length > 0,
    call: call.status,
    sender: block.transactions[0].from.toLowerCase() === account.address.toLowerCase(),
    fees: fees.baseFeePerGas.length,
    code: (await reader.getCode({ address: token })).length > 2,
    nonce: await reader.getTransactionCount({ address: account.address }),
    confirmations: `${await reader.getTransactionConfirmations({ hash })}`,
  };
}

async function withEthers({ url, key, token, to }) {
  const provider = new JsonRpcProvider(url, undefined, { polling: true, pollingInterval: 50, cacheTimeout: -1 });
  const wallet = new Wallet(key, provider);
  const contract = new Contract(token, abi, wallet);
  const watched = [];
  await contract.on("Transfer", (...event) => watched.push(event));
  const receipt = await (await contract.transfer(to, 5n)).wait();
  await (await wallet.sendTransaction({ to, value: 7n })).wait();
  let refusal;
  try {
    await contract.transfer.staticCall(to, 10n ** 20n);
  } catch (error) {
    refusal = error.reason;
  }
  const logs = await contract.queryFilter(contract.filters.Transfer(null, to), 0);
  for (let i = 0; watched.length === 0 && i < 100; i++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await contract.off("Transfer");
  const block = await provider.getBlock("latest", true);
  const fees = await provider.getFeeData();
  const found = {
    status: receipt.status,
    balance: `${await contract.balanceOf(to)}`,
    wei: `${await provider.getBalance(to)}`,
    refusal,
    logs: logs.length,
    watched: watched.length > 0,
    transactions: block.prefetchedTransactions.length,
    fees: fees.maxFeePerGas > 0n && fees.gasPrice > 0n,
    network: `${(await provider.getNetwork()).chainId}`,
    nonce: await provider.getTransactionCount(wallet.address),
  };
  provider.destroy();
  return found;
}

serve({ viem: withViem, ethers: withEthers });
