// Puts the form of the card processor into its place on the page. If that fails, the page shows the way to the processor's own page.
(() => {
  const at = document.getElementById("payment");
  const failed = () => at.classList.add("failed");
  if (!window.Stripe) {
    return failed();
  }
  Stripe(at.dataset.key).createEmbeddedCheckoutPage({ clientSecret: at.dataset.secret }).then((page) => page.mount(at)).catch(failed);
})();
